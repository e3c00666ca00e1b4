// The model: reads the content of a model file, and scores rows as rbr does.
//
// Values and slopes are arrays of one number per score column. A row is an object from the index of a column to a
// number, to a level of a category, or to null, which is missing.

const levelIn = (item) => (item !== null && typeof item === "object" ? number(item.number) : item);
const asColumns = (value) => (Array.isArray(value) ? value.map(number) : [number(value)]);

function readModel(content, texts) {
  const intercept = asColumns(content.intercept);
  return {
    content,
    intercept,
    nOutputs: intercept.length,
    terms: content.terms.map((item, t) => readTerm(item, texts.terms[t], intercept.length)),
  };
}

function readTerm(item, texts, nOutputs) {
  const term = { item, texts, name: item.name, columns: item.columns, kind: item.kind, nOutputs };
  if (item.kind === "pair") return readPair(term, item);
  Object.assign(term, {
    edges: item.edges.map(number),
    categories: item.categories && item.categories.map(levelIn),
    values: item.values.map(asColumns),
    missing: item.missing_value === null ? null : asColumns(item.missing_value),
    weights: item.weights.map(number),
    positions: item.positions.map(number),
    labels: item.labels,
    grouped: item.grouped,
    slopes: item.slopes.map(asColumns),
    bounds: item.bounds.map((pair) => pair.map(number)),
  });
  return withRows(term, item, item.counts.map(number));
}

function readPair(term, item) {
  const axes = item.axes.map((side, k) => ({
    name: side.name,
    column: item.columns[k],
    edges: side.edges.map(number),
    groups: side.groups && side.groups.map((group) => group.map(levelIn)),
    hasMissing: side.has_missing,
    nOrdered: side.groups ? side.groups.length : side.edges.length + 1,
  }));
  axes.forEach((axis) => (axis.nBins = axis.nOrdered + (axis.hasMissing ? 1 : 0)));
  Object.assign(term, {
    axes,
    values: item.values.flat().map(asColumns), // by cell, row after row
    weights: item.weights.flat().map(number),
    labels: item.labels.flat(),
  });
  return withRows(term, item, item.counts.flat().map(number));
}

// The training rows of each bin, and their shares: without class weights where the target sums are known.
function withRows(term, item, counts) {
  const sums = item.target_sums.map(asColumns);
  const byClass = sums.length > 0 && sums[0].length > 1;
  term.rows = byClass ? sums.map(sum) : counts;
  const own = byClass ? term.rows : term.weights;
  const total = Math.max(sum(own), Number.MIN_VALUE);
  term.shares = own.map((w) => w / total);
  return term;
}

// Which bin ------------------------------------------------------------------------------------------------

// The bin k with edges[k - 1] < x <= edges[k].
function binOf(edges, x) {
  let low = 0;
  let high = edges.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x <= edges[middle]) high = middle;
    else low = middle + 1;
  }
  return low;
}

const isMissing = (value) => value === null || value === undefined || (typeof value === "number" && isNaN(value));
const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/;
const keyOf = (level) => (typeof level === "string" ? "s:" + level : "n:" + Number(level));

// What a level says, whatever its type: a number, or else its text.
function meaning(level) {
  if (typeof level !== "string") return Number(level);
  const text = level.trim();
  const word = { true: 1, false: 0 }[text.toLowerCase()];
  if (word !== undefined) return word;
  return NUMBER.test(text) ? Number(text) : level;
}

// The position of a level among categories, -1 if training did not have it.
function levelPosition(owner, categories, level) {
  if (!owner.lookup) {
    owner.lookup = new Map(categories.map((own, k) => [keyOf(own), k]));
    owner.meanings = new Map();
    categories.forEach((own, k) => {
      const key = keyOf(meaning(own));
      owner.meanings.set(key, [...(owner.meanings.get(key) || []), k]);
    });
  }
  const found = owner.lookup.get(keyOf(level));
  if (found !== undefined) return found;
  const isText = (own) => typeof own === "string";
  let others = (owner.meanings.get(keyOf(meaning(level))) || []).filter((k) => !(isText(level) && isText(categories[k])));
  if (others.length > 1) {
    const written = others.filter((k) => String(categories[k]) === String(level));
    if (written.length !== 1) throw new Error(`${oneLine(level)} could be several of the categories of ${owner.name}`);
    others = written;
  }
  return others.length ? others[0] : -1;
}

// The bin of a row in a term: that of missing values is the last one; -1 if the term adds nothing.
function rowBin(term, row) {
  if (term.kind === "pair") {
    const [a, b] = term.axes.map((axis) => axisBin(axis, row[axis.column]));
    return a < 0 || b < 0 ? -1 : a * term.axes[1].nBins + b;
  }
  const value = row[term.columns[0]];
  if (isMissing(value)) return term.missing ? term.values.length : -1;
  return term.kind === "numeric" ? binOf(term.edges, value) : levelPosition(term, term.categories, value);
}

function axisBin(axis, value) {
  if (isMissing(value)) return axis.hasMissing ? axis.nOrdered : -1;
  if (!axis.groups) return binOf(axis.edges, value);
  const k = levelPosition(axis, axis.groups.flat(), value);
  if (k < 0) return -1;
  if (!axis.groupOf) axis.groupOf = axis.groups.flatMap((group, g) => group.map(() => g));
  return axis.groupOf[k];
}

// Scores ---------------------------------------------------------------------------------------------------

// (anchor, value there) of the line that some bins share: the means over their training rows.
function lineOf(term, bins) {
  let weights = bins.map((k) => term.weights[k]);
  if (!(sum(weights) > 0)) weights = bins.map(() => 1);
  const mean = (of) => sum(bins.map((k, i) => weights[i] * of(k))) / sum(weights);
  return [mean((k) => term.positions[k]), term.values[0].map((_, c) => mean((k) => term.values[k][c]))];
}

// The line through each bin, null where it is constant.
function linesOf(term) {
  if (term.lines) return term.lines;
  term.lines = term.values.map(() => null);
  const isLine = term.slopes.map((own) => own.some((slope) => slope !== 0));
  for (let k = 0; k < isLine.length; ) {
    let stop = k + 1;
    while (stop < isLine.length && isLine[k] && isLine[stop] && term.labels[stop] === term.labels[k]) stop++;
    if (isLine[k]) {
      const bins = Array.from({ length: stop - k }, (_, i) => k + i);
      const [anchor, value] = lineOf(term, bins);
      const line = { anchor, value, slope: term.slopes[k], bounds: term.bounds[k] };
      bins.forEach((bin) => (term.lines[bin] = line));
    }
    k = stop;
  }
  return term.lines;
}

const onLine = (line, x) => {
  const at = Math.min(Math.max(x, line.bounds[0]), line.bounds[1]);
  return line.value.map((value, c) => (line.slope[c] ? value + line.slope[c] * (at - line.anchor) : value));
};

// What a term adds to the scores of a row.
function contribution(term, row) {
  const k = rowBin(term, row);
  if (k < 0) return new Array(term.nOutputs).fill(0);
  if (term.kind !== "pair" && k === term.values.length) return term.missing;
  if (term.kind !== "numeric") return term.values[k];
  const line = linesOf(term)[k];
  return line ? onLine(line, row[term.columns[0]]) : term.values[k];
}

const contributions = (model, row) => model.terms.map((term) => contribution(term, row));

function scoresOf(model, row, offset) {
  const scores = model.intercept.slice();
  for (const own of contributions(model, row)) own.forEach((value, c) => (scores[c] += value));
  if (offset) offset.forEach((value, c) => (scores[c] += value));
  return scores;
}

const sigmoid = (z) => (z >= 0 ? 1 / (1 + Math.exp(-z)) : Math.exp(z) / (1 + Math.exp(z)));

// Predictions from scores: for two classes the probabilities of both, for more that of each.
function predictionOf(link, scores) {
  if (link === "log") return [Math.exp(scores[0])];
  if (link === "logit") return [sigmoid(-scores[0]), sigmoid(scores[0])];
  if (link === "softmax") {
    const top = Math.max(...scores);
    const sizes = scores.map((z) => Math.exp(z - top));
    return sizes.map((size) => size / sum(sizes));
  }
  return [scores[0]];
}

// Pieces ---------------------------------------------------------------------------------------------------

function piecesOf(term) {
  if (!term.pieces) term.pieces = term.kind === "pair" ? rectangles(term) : runs(term);
  return term.pieces;
}

function groupsOf(labels) {
  const groups = new Map();
  labels.forEach((label, k) => groups.set(label, [...(groups.get(label) || []), k]));
  return [...groups.entries()];
}

const compareLists = (a, b) => {
  const k = a.findIndex((x, i) => x !== b[i]);
  return k < 0 ? 0 : a[k] - b[k];
};

function runs(term) {
  const found = groupsOf(term.labels);
  if (term.grouped) found.sort((a, b) => compareLists(term.values[a[1][0]], term.values[b[1][0]]));
  const texts = piecesInWords(term, found.map(([, bins]) => bins));
  const lines = linesOf(term);
  return found.map(([label, bins], p) => {
    const [first, last] = [bins[0], bins[bins.length - 1]];
    const isRange = term.kind === "numeric" && last - first + 1 === bins.length;
    const low = isRange ? (first > 0 ? term.edges[first - 1] : -Infinity) : null;
    const high = isRange ? (last < term.edges.length ? term.edges[last] : Infinity) : null;
    const line = lines[first];
    const piece = { ...facts(term, bins), bins, low, high, text: texts[p], line, value: term.values[first] };
    piece.kind = label % 2 ? "line" : term.grouped ? "level" : "constant";
    piece.ends = [term.values[first], term.values[last]];
    if (label % 2) piece.value = lineOf(term, bins)[1];
    if (line) piece.ends = [onLine(line, low), onLine(line, high)];
    return piece;
  });
}

const facts = (term, bins) => ({
  rows: sum(bins.map((k) => term.rows[k])),
  share: sum(bins.map((k) => term.shares[k])),
});

function rectangles(term) {
  return groupsOf(term.labels).map(([, bins]) => ({
    ...facts(term, bins),
    bins,
    kind: "rectangle",
    value: term.values[bins[0]],
    text: [...new Set(bins.map((k) => term.texts.cells[term.texts.cellOf[k]]))].join(" or "),
  }));
}

function piecesInWords(term, groups) {
  if (term.kind === "category") {
    const names = term.texts.levels.length ? term.texts.levels : ["no category"];
    return groups.map((bins) => bins.map((k) => names[k]).join(", "));
  }
  const ranges = groups.map((bins) => {
    const starts = bins.filter((k, i) => i === 0 || bins[i - 1] !== k - 1);
    const stops = bins.filter((k, i) => i === bins.length - 1 || bins[i + 1] !== k + 1);
    return starts.map((start, i) => [start, stops[i] + 1]);
  });
  const cuts = [...new Set(ranges.flat().map(([start]) => start))].filter((k) => k > 0).sort((a, b) => a - b);
  const words = shortNumbers(cuts.map((k) => term.edges[k - 1]));
  const short = new Map(cuts.map((k, i) => [k, words[i]]));
  return ranges.map((group) => group.map(([a, b]) => interval(short.get(a), short.get(b))).join(", "));
}

function interval(low, high) {
  if (low === undefined) return high === undefined ? "any number" : `<= ${high}`;
  return high === undefined ? `> ${low}` : `(${low}, ${high}]`;
}

const importance = (term) => {
  const all = term.missing ? [...term.values, term.missing] : term.values;
  return sum(all.map((own, k) => (term.weights[k] * sum(own.map(Math.abs))) / own.length));
};
