/* Numbers in text: the double nearest to a decimal, and the shortest decimal that gives a double back.

   Both multiply by a power of ten to 128 bits, of which POWERS holds the floor of 10^q 2^(127 - e), where 2^e is the
   largest power of two that is at most 10^q. */
#include <stdint.h>
#include <string.h>

#define FIRST_POWER (-342)
#define LAST_POWER 324
static uint64_t POWERS[2 * (LAST_POWER - FIRST_POWER + 1)]; /* high and low half of each, filled by _csv.pyx */

/* The high and low half of a product. */
#if defined(__SIZEOF_INT128__)
static inline uint64_t product(uint64_t a, uint64_t b, uint64_t *low) {
    unsigned __int128 p = (unsigned __int128)a * b;
    *low = (uint64_t)p;
    return (uint64_t)(p >> 64);
}
#else
static inline uint64_t product(uint64_t a, uint64_t b, uint64_t *low) {
    uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    uint64_t middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (uint32_t)middle;
    *low = (other << 32) | (uint32_t)(a0 * b0);
    return a1 * b1 + (middle >> 32) + (other >> 32);
}
#endif

/* floor(log2(10^q)) and floor(log10(2^q)), and the latter of 3/4 2^q, for all exponents of doubles. */
static inline int log2_of_power(int q) { return (q * 1741647) >> 19; }
static inline int log10_of_binary(int q) { return (q * 1262611) >> 22; }
static inline int log10_of_three_quarters(int q) { return (q * 1262611 - 524031) >> 22; }

static inline int leading_zeros(uint64_t x) {
#if defined(__GNUC__)
    return __builtin_clzll(x);
#endif
    int n = 0;
    for (int shift = 32; shift; shift >>= 1)
        if (!(x >> (64 - shift))) {
            n += shift;
            x <<= shift;
        }
    return n;
}

static const double EXACT_POWERS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                      1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* The double nearest to w 10^q, or to any number from there up to (w + 1) 10^q if that is the same one; w has all its
   19 digits then. Returns 0 if it lies too close to the middle of two doubles, or is not a normal one. */
static inline int nearest_double(uint64_t w, int q, int is_cut, double *out) {
    int zeros, e, top;
    uint64_t high, low, lowest, middle, rest, half, mantissa, span;
    if (w == 0) {
        *out = 0.0;
        return 1;
    }
    if (!is_cut && w <= (1ULL << 53) && q >= -22 && q <= 22) { /* one rounding of two exact numbers */
        *out = q < 0 ? (double)w / EXACT_POWERS[-q] : (double)w * EXACT_POWERS[q];
        return 1;
    }
    if (q < FIRST_POWER || q > 308)
        return 0;
    zeros = leading_zeros(w);
    w <<= zeros;
    high = product(w, POWERS[2 * (q - FIRST_POWER)], &low);
    middle = product(w, POWERS[2 * (q - FIRST_POWER) + 1], &lowest);
    low += middle;
    high += low < middle;
    /* The number is (high, low) 2^(e - 63 - zeros), plus less than 2 in the last place of low. Its 53 first bits are
       all in high; below them are ten or eleven bits of high, and low. */
    top = 62 + (int)(high >> 63);
    e = log2_of_power(q) + top + 1 - zeros;
    if (e < -1022 || e > 1023)
        return 0;
    mantissa = high >> (top - 52);
    rest = high & ((1ULL << (top - 52)) - 1);
    half = 1ULL << (top - 53);
    span = (2ULL << zeros) + 1; /* in the last place of high: more than the digits that were cut can add */
    if (rest > half || (rest == half && low > 0))
        mantissa++;
    else if (rest == half || (is_cut ? rest + span >= half : rest + 1 == half && low > UINT64_MAX - 2))
        return 0;
    mantissa += ((uint64_t)(e + 1023) << 52) - (1ULL << 52); /* one more bit of the mantissa is one more in e */
    memcpy(out, &mantissa, sizeof mantissa);
    return 1;
}

#define EACH_BYTE(x) (0x0101010101010101ULL * (x))

/* What number_of_text gives for 1 to 8 characters, digits with perhaps a point, of which all 8 bytes from p on can be
   read: without branches, since lengths of numbers are hard to foresee. Returns 0 for others. */
static inline int number_of_8_bytes(const uint8_t *p, int n, uint8_t point, int is_negative, double *out) {
    uint64_t w, at_point, above, digits, bits;
    int n_after; /* digits after the point, that is bytes above it */
    memcpy(&w, p, 8);
    w <<= 8 * (8 - n);
    w |= n < 8 ? EACH_BYTE('0') >> (8 * n) : 0;
    at_point = w ^ EACH_BYTE(point);
    at_point = ~(((at_point & EACH_BYTE(0x7f)) + EACH_BYTE(0x7f)) | at_point) & EACH_BYTE(0x80); /* where that is 0 */
    n_after = at_point ? leading_zeros(at_point) / 8 : 0;
    above = at_point ? ~((at_point << 1) - 1) & -(at_point != (1ULL << 63)) : UINT64_MAX;
    digits = at_point ? (w & above) | (w & ((at_point >> 7) - 1)) << 8 | '0' : w;
    if ((digits & EACH_BYTE(0xf0)) != EACH_BYTE('0') || ((digits + EACH_BYTE(6)) & EACH_BYTE(0xf0)) != EACH_BYTE('0'))
        return 0;
    digits -= EACH_BYTE('0'); /* eight digits, then four numbers of two, two of four, and one */
    digits = (digits * 10 + (digits >> 8)) & 0x00ff00ff00ff00ffULL;
    digits = (digits * 100 + (digits >> 16)) & 0x0000ffff0000ffffULL;
    digits = (digits * 10000 + (digits >> 32)) & 0xffffffffULL;
    *out = (double)(int64_t)digits / EXACT_POWERS[n_after];
    memcpy(&bits, out, 8);
    bits |= (uint64_t)is_negative << 63;
    memcpy(out, &bits, 8);
    return n > 1 || !at_point;
}

enum { NOT_PLAIN, PLAIN, TOO_CLOSE };

/* [+-] digits [point digits] [e [+-] digits], in blanks and perhaps quotes that a caller has taken away. An empty text
   is NaN. NOT_PLAIN: something else; TOO_CLOSE: so close to the middle of two doubles, or so small or large, that it
   takes more digits to tell. */
static inline int number_of_text(const uint8_t *p, const uint8_t *end, uint8_t point, double *out) {
    uint64_t w = 0;
    int q = 0, n_digits = 0, n_kept = 0, is_cut = 0, exponent = 0, is_negative, is_small, has_digits, outcome;
    const uint8_t *start;
    if (p == end) {
        const uint64_t nan = 0x7ff8000000000000ULL;
        memcpy(out, &nan, sizeof nan);
        return PLAIN;
    }
    while (p < end && (*p == ' ' || *p == '\t'))
        p++;
    while (end > p && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    is_negative = p < end && *p == '-';
    p += p < end && (*p == '-' || *p == '+');
    if (end - p <= 19) { /* all digits fit */
        start = p;
        for (; p < end && (uint8_t)(*p - '0') < 10; p++)
            w = 10 * w + (*p - '0');
        n_digits = (int)(p - start);
        if (p < end && *p == point) {
            start = ++p;
            for (; p < end && (uint8_t)(*p - '0') < 10; p++)
                w = 10 * w + (*p - '0');
            q = -(int)(p - start);
            n_digits -= q;
        }
    } else {
        int is_fraction = 0;
        for (; p < end; p++) {
            uint8_t digit = *p - '0';
            if (digit < 10) {
                n_digits = 1;
                if (n_kept < 19) {
                    w = 10 * w + digit;
                    n_kept += w > 0;
                    q -= is_fraction;
                } else {
                    is_cut |= digit > 0;
                    q += !is_fraction;
                }
            } else if (*p == point && !is_fraction)
                is_fraction = 1;
            else
                break;
        }
    }
    if (!n_digits)
        return NOT_PLAIN;
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        is_small = p < end && *p == '-';
        p += p < end && (*p == '-' || *p == '+');
        for (has_digits = 0; p < end && (uint8_t)(*p - '0') < 10; p++, has_digits = 1)
            exponent = exponent < 100000 ? 10 * exponent + (*p - '0') : exponent;
        if (!has_digits)
            return NOT_PLAIN;
        q += is_small ? -exponent : exponent;
    }
    if (p < end)
        return NOT_PLAIN;
    outcome = nearest_double(w, q, is_cut, out) ? PLAIN : TOO_CLOSE;
    if (is_negative && outcome == PLAIN)
        *out = -*out;
    return outcome;
}

/* g x / 2^128, where g is POWERS + 1, with the last bit set if the rest is not 0 ("round to odd"). */
static inline uint64_t scaled(uint64_t high, uint64_t low, uint64_t x) {
    uint64_t a, b, unused, carried = product(low, x, &unused);
    a = product(high, x, &b);
    b += carried;
    a += b < carried;
    return a | (b > 1);
}

/* The shortest decimal s 10^k in the interval that rounds to the finite double c 2^q > 0; of several the nearest. By
   R. Giulietti, "The Schubfach way to render doubles" (2020): 10^k is at most as long as the interval, so a multiple of
   it is inside; at most one multiple of 10^(k + 1) is, which is then the shortest. */
static inline uint64_t shortest_decimal(uint64_t c, int q, int *k_out) {
    uint64_t odd = c & 1, high, low, at, below, above, s, ten;
    int is_even_step = c != (1ULL << 52) || q == -1074; /* the doubles on both sides are equally far */
    int k = is_even_step ? log10_of_binary(q) : log10_of_three_quarters(q), shift = q + log2_of_power(-k) + 1;
    high = POWERS[2 * (-k - FIRST_POWER)];
    low = POWERS[2 * (-k - FIRST_POWER) + 1] + 1;
    high += low == 0;
    at = scaled(high, low, 4 * c << shift);
    below = scaled(high, low, (4 * c - 1 - is_even_step) << shift) + odd;
    above = scaled(high, low, (4 * c + 2) << shift) - odd;
    s = at / 4;
    *k_out = k;
    if (s >= 10) {
        ten = s / 10 * 10;
        if ((below <= 4 * ten) != (4 * ten + 40 <= above))
            return below <= 4 * ten ? ten : ten + 10;
    }
    if ((below <= 4 * s) != (4 * s + 4 <= above))
        return below <= 4 * s ? s : s + 1;
    return s + (at > 4 * s + 2 || (at == 4 * s + 2 && (s & 1)));
}

/* Eight digits of a number below 10^8, the first one in the lowest byte. */
static inline uint64_t eight_digits(uint64_t x) {
    uint64_t upper;
    x = x / 10000 | x % 10000 << 32;
    upper = (x * 10486 >> 20) & 0x0000007f0000007fULL;
    x = upper | (x - 100 * upper) << 16;
    upper = (x * 103 >> 10) & 0x000f000f000f000fULL;
    return upper | (x - 10 * upper) << 8 | EACH_BYTE('0');
}

#define NUMBER_WIDTH 24

/* A double as Python's repr writes it: at most NUMBER_WIDTH characters, of which it returns the number. */
static inline int text_of_number(double x, uint8_t *out) {
    uint64_t bits, c, s;
    uint8_t padded[24], *digits = padded + 8, *start = out;
    int q, k, n, e, i;
    memcpy(&bits, &x, sizeof bits);
    c = bits & ((1ULL << 52) - 1);
    q = (int)(bits >> 52 & 0x7ff);
    if (q == 0x7ff && c) {
        memcpy(out, "nan", 3);
        return 3;
    }
    if (bits >> 63)
        *out++ = '-';
    if (q == 0x7ff || (q == 0 && c == 0)) {
        memcpy(out, q ? "inf" : "0.0", 3);
        return (int)(out + 3 - start);
    }
    s = q ? shortest_decimal(c | (1ULL << 52), q - 1075, &k) : shortest_decimal(c, -1074, &k);
    bits = eight_digits(s / 100000000 % 100000000);
    memcpy(digits, &bits, 8);
    bits = eight_digits(s % 100000000);
    memcpy(digits + 8, &bits, 8);
    *--digits = (uint8_t)('0' + s / 10000000000000000ULL); /* shortest decimals have at most 17 digits */
    for (n = 17; *digits == '0'; n--)
        digits++;
    for (; digits[n - 1] == '0'; n--)
        k++;
    e = k + n - 1; /* of the first digit */
    if (e < -4 || e >= 16) {
        *out++ = digits[0];
        if (n > 1) {
            *out++ = '.';
            memcpy(out, digits + 1, n - 1);
            out += n - 1;
        }
        *out++ = 'e';
        *out++ = e < 0 ? '-' : '+';
        e = e < 0 ? -e : e;
        if (e >= 100)
            *out++ = (uint8_t)('0' + e / 100);
        *out++ = (uint8_t)('0' + e / 10 % 10);
        *out++ = (uint8_t)('0' + e % 10);
        return (int)(out - start);
    }
    if (e < 0) { /* 0.00 and the digits */
        for (i = 0; i < 1 - e; i++)
            *out++ = i == 1 ? '.' : '0';
        memcpy(out, digits, n);
        return (int)(out + n - start);
    }
    for (i = 0; i <= (k > 0 ? e : n - 1); i++) { /* the digit of 10^(e - i) */
        if (i == e + 1)
            *out++ = '.';
        *out++ = i >= n ? '0' : digits[i];
    }
    if (k >= 0) {
        *out++ = '.';
        *out++ = '0';
    }
    return (int)(out - start);
}
