/* exp as a short series without branches, so that the compiler works on several numbers at a time (wide.h). It is
   accurate to the last bit or two. */
#ifndef RBR_SERIES_H
#define RBR_SERIES_H
#include <stdint.h>
#include <string.h>

/* exp(x) = 2^k (1 + p), |x| < 2^20: gives p and k. p = exp(r) - 1 by the Taylor series of degree 13, |r| <= log(2) / 2. */
static inline double exp_parts(double x, double *k) {
    const double ROUNDS = 6755399441055744.0; /* 1.5 * 2^52: adding it leaves a whole number */
    const double LOG2_HIGH = 6.93147180369123816490e-01, LOG2_LOW = 1.90821492927058770002e-10;
    double r, w, even, odd;
    *k = (x * 1.4426950408889634 + ROUNDS) - ROUNDS;
    r = (x - *k * LOG2_HIGH) - *k * LOG2_LOW;
    w = r * r;
    even = 1.0 / 479001600;
    odd = 1.0 / 6227020800;
    even = even * w + 1.0 / 3628800;
    odd = odd * w + 1.0 / 39916800;
    even = even * w + 1.0 / 40320;
    odd = odd * w + 1.0 / 362880;
    even = even * w + 1.0 / 720;
    odd = odd * w + 1.0 / 5040;
    even = even * w + 1.0 / 24;
    odd = odd * w + 1.0 / 120;
    even = even * w + 0.5;
    odd = odd * w + 1.0 / 6;
    return r + w * (even + r * odd);
}

/* 2^(k - shift) of a whole number k, which must be a normal number. */
static inline double power_of_two(double k, int shift) {
    double shifted = k + 6755399441055744.0, power; /* k stands in the low bits */
    int64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (int64_t)(((uint64_t)bits + (uint64_t)(1023 - shift)) << 52);
    memcpy(&power, &bits, sizeof bits);
    return power;
}

/* exp(x) = 2^k (1 + p), |x| <= 746: gives p, and 2^(k - shift), which must be a normal number for every possible k. */
static inline double exp_series(double x, int shift, double *power) {
    double k, p = exp_parts(x, &k);
    *power = power_of_two(k, shift);
    return p;
}

#define TWO_TO_64 18446744073709551616.0

static inline double exp_of_nonpositive(double x) {
    x = x < -746.0 ? -746.0 : x; /* exp is 0 there; NaN stays */
    double power, p = exp_series(x, -64, &power);
    return (1.0 + p) * power * (1.0 / TWO_TO_64);
}

#endif
