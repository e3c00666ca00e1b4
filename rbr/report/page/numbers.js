// Numbers and text as Python writes them.

const NOT_FINITE = { NaN: NaN, Infinity: Infinity, "-Infinity": -Infinity };
const number = (value) => (typeof value === "string" ? NOT_FINITE[value] : value);
const numberOut = (value) => (Number.isFinite(value) ? value : String(value));
const sum = (values) => values.reduce((a, b) => a + b, 0);

// Like x.toExponential(digits), but a tie goes to the even digit, as in Python.
function exponential(x, digits) {
  const text = x.toExponential(digits);
  const exact = x.toExponential(Math.min(digits + 30, 100));
  const [mantissa, exponent] = exact.split("e");
  const places = mantissa.replace("-", "").replace(".", "");
  if (!/^50*$/.test(places.slice(digits + 1)) || places[digits] % 2) return text;
  const head = places.slice(0, digits + 1);
  return (x < 0 ? "-" : "") + head[0] + (digits ? "." + head.slice(1) : "") + "e" + exponent;
}

// f"{x:.{precision}g}"
function general(x, precision = 6) {
  if (!Number.isFinite(x)) return Number.isNaN(x) ? "nan" : x > 0 ? "inf" : "-inf";
  if (x === 0) return "0";
  const [mantissa, power] = exponential(x, precision - 1).split("e");
  const exponent = Number(power);
  if (exponent < -4 || exponent >= precision) {
    const sign = exponent < 0 ? "-" : "+";
    return trimmed(mantissa) + "e" + sign + String(Math.abs(exponent)).padStart(2, "0");
  }
  return trimmed(Number(mantissa + "e" + power).toFixed(Math.max(0, precision - 1 - exponent)));
}

const trimmed = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
const signed = (x, precision = 3) => (x < 0 ? "" : "+") + general(x, precision);

// repr(x) of a float. A whole number is written without a point, and Python then reads an integer.
function repr(x) {
  if (Number.isInteger(x) && Math.abs(x) < 1e21) return Object.is(x, -0) ? "0" : String(x);
  const [mantissa, power] = x.toExponential().split("e");
  const exponent = Number(power);
  if (exponent >= -4 && exponent < 16) return plain(mantissa, exponent);
  return mantissa + "e" + (exponent < 0 ? "-" : "+") + String(Math.abs(exponent)).padStart(2, "0");
}

// A number without an exponent, from its shortest digits.
function plain(mantissa, exponent) {
  const sign = mantissa[0] === "-" ? "-" : "";
  const digits = mantissa.replace(/[-.]/g, "");
  if (exponent < 0) return sign + "0." + "0".repeat(-exponent - 1) + digits;
  if (digits.length <= exponent + 1) return sign + digits + "0".repeat(exponent + 1 - digits.length);
  return sign + digits.slice(0, exponent + 1) + "." + digits.slice(exponent + 1);
}

function plainNumber(x) {
  if (x === 0) return "0";
  const [mantissa, power] = x.toExponential().split("e");
  return plain(mantissa, Number(power));
}

// Increasing numbers, with as few digits as keep each within 5% of the distance to its nearest neighbour.
function shortNumbers(numbers) {
  const gap = (k) => (k < 0 || k >= numbers.length - 1 ? Infinity : numbers[k + 1] - numbers[k]);
  const slack = numbers.map((x, k) =>
    numbers.length === 1 ? Math.abs(x) * 1e-6 : 0.05 * Math.min(gap(k - 1), gap(k)));
  let rounded = numbers;
  let digits = 3;
  for (; digits < 18; digits++) {
    rounded = numbers.map((x) => Number(exponential(x, digits - 1)));
    if (rounded.every((x, k) => Number.isFinite(x) && Math.abs(x - numbers[k]) <= slack[k])) break;
  }
  return rounded.map((x) =>
    Math.abs(x) >= 1e16 || (x !== 0 && Math.abs(x) < 1e-4) ? general(x, Math.min(digits, 17)) : plainNumber(x));
}

// Characters that cannot be seen as their escapes.
const oneLine = (text) =>
  String(text).replace(/[\p{C}\p{Z}]/gu, (c) => {
    if (c === " ") return c;
    const short = { "\n": "\\n", "\t": "\\t", "\r": "\\r" }[c];
    const code = c.codePointAt(0);
    const hex = (n) => code.toString(16).padStart(n, "0");
    return short || (code < 0x100 ? "\\x" + hex(2) : code < 0x10000 ? "\\u" + hex(4) : "\\U" + hex(8));
  });

// Few digits, and commas instead of an exponent, for axes and counts.
const compact = (x) => (Math.abs(x) >= 1e-4 && Math.abs(x) < 1e15) || x === 0 ? x.toLocaleString("en", { maximumSignificantDigits: 3 }) : general(x, 3);
const countText = (n) => n.toLocaleString("en", { maximumFractionDigits: n < 100 ? 1 : 0 });

const percent = (share) => (share >= 0.0995 ? Math.round(100 * share) : general(100 * share, 2)) + "%";
const counted = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
