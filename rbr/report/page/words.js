// The reasons for a prediction in words, as rbr.model.reasons tells them.

// What is told of the values of all outputs: that of one of them, less the mean of several.
const told = (values, output) => values[output] - (values.length > 1 ? sum(values) / values.length : 0);

function rowInWords(model, texts, row, { n = 5, offset = null, output = null } = {}) {
  const offsets = offset || model.intercept.map(() => 0);
  const scores = scoresOf(model, row, offsets);
  const own = output === null ? scores.indexOf(Math.max(...scores)) : output;
  const words = new Words(model, texts, own);
  const effects = contributions(model, row).map((values) => told(values, own));
  const order = effects.map((_, t) => t).filter((t) => effects[t] !== 0);
  order.sort((a, b) => Math.abs(effects[b]) - Math.abs(effects[a]));
  const shown = n === null ? order : order.slice(0, n);
  const others = order.slice(shown.length);
  const rest = sum(others.map((t) => effects[t]));
  const before = model.intercept.map((c, k) => c + offsets[k]);
  return {
    output: own,
    scores,
    effects,
    order,
    head: words.head(scores, before, offsets),
    reasons: shown.map((t) => words.reason(model.terms[t], row, effects[t])),
    tail: words.tail(rest, others.length),
    unseen: model.terms.filter((term) => rowBin(term, row) < 0).map((term) => words.unseen(term, row)),
  };
}

class Words {
  constructor(model, texts, output) {
    Object.assign(this, { texts, output, link: texts.link, target: texts.target });
    this.label = texts.classes ? texts.classes[model.nOutputs === 1 ? 1 : output] : "";
  }

  head(scores, before, offsets) {
    const { link, output } = this;
    const at = (z) => (link === "logit" ? sigmoid(z[0]) : predictionOf(link, z)[output]);
    let beside = offsets.some((z) => z !== 0) ? `, with the offset ${offsets.map((z) => general(z, 3)).join(", ")}` : "";
    if (link !== "logit" && link !== "softmax") {
      if (link === "log" && this.texts.had_exposure) beside = ` for an exposure of ${general(Math.exp(offsets[0]), 4)}`;
      return `${this.target} is ${general(at(scores), 4)}${beside}: before any reason ${general(at(before), 4)}`;
    }
    const [score, first] = [told(scores, output), told(before, output)];
    const how = link === "softmax" ? `its score is ${signed(score)} beside the mean of the classes` : `log-odds ${general(score, 3)}`;
    return (
      `the probability of ${this.label} is ${general(at(scores), 3)}${beside}: ${how}, ` +
      `before any reason ${general(first, 3)} (probability ${general(at(before), 3)})`
    );
  }

  tail(rest, n) {
    if (!n) return "";
    const reasons = n === 1 ? "1 smaller reason" : `${n} smaller reasons together`;
    return `${reasons} ${this.effect(rest, n > 1)}`;
  }

  effect(effect, isPlural = false) {
    const s = isPlural ? "" : "s";
    if (this.link === "log") {
      return `${isPlural ? "multiply" : "multiplies"} ${this.target} by ${general(Math.exp(effect), 3)}`;
    }
    const size = general(Math.abs(effect), 3);
    if (this.link !== "logit" && this.link !== "softmax") {
      return effect > 0 ? `add${s} ${size} to ${this.target}` : `take${s} ${size} from ${this.target}`;
    }
    const moved = `${effect > 0 ? "raise" : "lower"}${s} the`;
    if (this.link === "softmax") return `${moved} score of ${this.label} by ${size}`;
    return `${moved} log-odds of ${this.label} by ${size} (odds times ${general(Math.exp(effect), 3)})`;
  }

  reason(term, row, effect) {
    const k = rowBin(term, row);
    const piece = piecesOf(term).find((own) => own.bins.includes(k));
    const where = piece ? piece.text : "missing";
    const isPlain = ["missing", "any number", "everywhere"].includes(where) || term.kind === "category";
    return `${toldValue(term, row)}${isPlain ? "" : `, ${where}`}: ${this.effect(effect)}`;
  }

  unseen(term, row) {
    const isNever = term.kind !== "pair" && isMissing(row[term.columns[0]]);
    const why = isNever ? "which it never was in training" : "which training did not have";
    return `${toldValue(term, row)}, ${why}: adds nothing`;
  }
}

const sidesOf = (term) => (term.kind === "pair" ? term.axes : [term]);
const isNumeric = (side) => (side.groups === undefined ? side.kind === "numeric" : side.groups === null);

function toldValue(term, row) {
  return sidesOf(term).map((side, k) => {
    const value = row[term.columns[k]];
    const text = isMissing(value) ? "missing" : isNumeric(side) ? general(value) : levelText(side, term, k, value);
    return `${oneLine(side.name)} is ${text}`;
  }).join(" and ");
}

// A level as it is written in Python, where 1.0 and True are not 1.
function levelText(side, term, k, value) {
  const levels = term.kind === "pair" ? side.groups.flat() : term.categories;
  const position = levelPosition(side, levels, value);
  const names = term.kind === "pair" ? term.texts.levels[k] : term.texts.levels;
  const isSame = position >= 0 && typeof levels[position] === typeof value;
  return isSame ? names[position] : oneLine(value);
}
