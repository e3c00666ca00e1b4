// Edits, as rbr.model.edits defines them, and the file of the edited model.

const LEAST_WEIGHT = 1e-12;
const weightOf = (term, k) => Math.max(term.weights[k], LEAST_WEIGHT);

// A copy of a term with other fields. Pieces and lines are found again.
const changedTerm = (term, changes) => ({ ...term, pieces: undefined, lines: undefined, isEdited: true, ...changes });

function meanOf(term, bins) {
  const total = sum(bins.map((k) => weightOf(term, k)));
  return term.values[0].map((_, c) => sum(bins.map((k) => weightOf(term, k) * term.values[k][c])) / total);
}

// The bins become one constant piece of the given value; the other pieces stay.
function withPiece(term, bins, value) {
  const inside = new Set(bins);
  const values = term.values.map((own, k) => (inside.has(k) ? value : own));
  if (term.kind === "pair") {
    const labels = term.labels.map((label, k) => (inside.has(k) ? term.labels[bins[0]] : label));
    return changedTerm(term, { values, labels: numbered(labels) });
  }
  const fresh = 2 * term.labels.length; // an even number that no other piece has
  const labels = term.labels.map((label, k) => (inside.has(k) ? fresh : label));
  const slopes = term.slopes.map((own, k) => (inside.has(k) ? own.map(() => 0) : own));
  return changedTerm(term, {
    values, slopes, bounds: boundsOf(term, slopes), labels: numbered(labels).map((p, k) => 2 * p + (labels[k] % 2)),
  });
}

// Labels as 0, 1, ... in the order in which they first occur.
function numbered(labels) {
  const order = new Map();
  return labels.map((label) => {
    if (!order.has(label)) order.set(label, order.size);
    return order.get(label);
  });
}

const boundsOf = (term, slopes) =>
  term.bounds.map((own, k) => (slopes[k].some((slope) => slope !== 0) ? own : [-Infinity, Infinity]));

function setPiece(term, { piece, value }) {
  const given = Array.isArray(value) ? value : new Array(term.nOutputs).fill(value);
  if (given.length !== term.nOutputs || !given.every(Number.isFinite)) throw new Error("the value must be a finite number");
  if (piece === "missing") return changedTerm(term, { missing: given });
  return withPiece(term, piecesOf(term)[piece].bins, given);
}

function mergePieces(term, { pieces }) {
  const chosen = [...new Set(pieces)].sort((a, b) => a - b);
  if (chosen.length < 2) throw new Error("choose at least two pieces to merge");
  const areNeighbours = chosen[chosen.length - 1] - chosen[0] === chosen.length - 1;
  if (term.kind !== "pair" && !term.grouped && !areNeighbours) throw new Error("only neighbouring pieces can be merged");
  const bins = chosen.flatMap((p) => piecesOf(term)[p].bins).sort((a, b) => a - b);
  return withPiece(term, bins, meanOf(term, bins));
}

function isotonic(values, weights) {
  const blocks = [];
  values.forEach((own, k) => {
    let [value, weight, size] = [own, weights[k], 1];
    while (blocks.length && blocks[blocks.length - 1].value >= value) {
      const before = blocks.pop();
      value = before.value + (weight * (value - before.value)) / (before.weight + weight);
      weight += before.weight;
      size += before.size;
    }
    blocks.push({ value, weight, size });
  });
  return blocks.flatMap(({ value, size }) => new Array(size).fill(value));
}

const rises = (values, sign) => values.every((value, k) => k === 0 || sign * value - sign * values[k - 1] >= 0);

function makeMonotone(term, { increasing }) {
  if (term.kind !== "numeric") throw new Error("only numeric terms of one column can be made monotone");
  const sign = increasing ? 1 : -1;
  const weights = term.values.map((_, k) => weightOf(term, k));
  const columns = term.values[0].map((_, c) => {
    const column = term.values.map((own) => own[c]);
    return rises(column, sign) ? column : isotonic(column.map((v) => sign * v), weights).map((v) => sign * v);
  });
  const values = term.values.map((_, k) => columns.map((column) => column[k]));
  const isSame = (k) => compareLists(values[k], term.values[k]) === 0;
  const ends = piecesOf(term).flatMap((piece) => piece.ends);
  const rounding = 1e-12 * Math.max(...ends.flat().map(Math.abs));
  const endsRise = term.values[0].every((_, c) =>
    ends.every((end, k) => k === 0 || sign * end[c] - sign * ends[k - 1][c] >= -rounding));
  const hasSlopes = term.slopes.flat().some((slope) => slope !== 0);
  if (values.every((_, k) => isSame(k)) && (!hasSlopes || endsRise)) return term;
  const stays = (own, k) => isSame(k) && own.every((slope) => sign * slope >= 0);
  const slopes = term.slopes.map((own, k) => (stays(own, k) ? own : own.map(() => 0)));
  const edited = changedTerm(term, { values, labels: relabelled(term, values), slopes, bounds: boundsOf(term, slopes), grouped: false });
  return changedTerm(edited, { bounds: meetingBounds(edited) });
}

// Bounds within which the lines of a term whose bins are monotone do not pass their neighbours: two lines meet halfway
// between the last bin of one and the first bin of the other, a line and a constant at the constant.
function meetingBounds(term) {
  const pieces = piecesOf(term);
  const bounds = term.bounds.map((own) => own.slice());
  for (let p = 1; p < pieces.length; p++) {
    const [left, right] = [pieces[p - 1], pieces[p]];
    const before = term.values[left.bins[left.bins.length - 1]];
    const after = term.values[right.bins[0]];
    const share = left.line && right.line ? 0.5 : left.line ? 1 : 0;
    const level = before.map((own, c) => own + share * (after[c] - own));
    for (const [piece, side, nearest] of [[left, 1, Math.min], [right, 0, Math.max]]) {
      if (!piece.line) continue;
      const { anchor, value, slope } = piece.line;
      const places = level.flatMap((own, c) => (slope[c] ? [anchor + (own - value[c]) / slope[c]] : []));
      for (const k of piece.bins) bounds[k][side] = nearest(bounds[k][side], ...places);
    }
  }
  return bounds;
}

// Labels of new values: lines whose values did not change stay lines, elsewhere runs of equal values are pieces.
function relabelled(term, values) {
  const isSame = (k) => compareLists(values[k], term.values[k]) === 0;
  const keys = values.map((own, k) => (term.labels[k] % 2 && isSame(k) ? { line: term.labels[k] } : { own }));
  const sameKey = (a, b) =>
    a.line !== undefined || b.line !== undefined ? a.line === b.line : compareLists(a.own, b.own) === 0;
  let piece = -1;
  return keys.map((key, k) => {
    piece += k === 0 || !sameKey(key, keys[k - 1]) ? 1 : 0;
    return 2 * piece + (key.line === undefined ? 0 : 1);
  });
}

function smooth(term, { bandwidth }) {
  if (!(bandwidth > 0 && bandwidth < Infinity)) throw new Error("the width must be a positive number");
  if (term.kind !== "numeric") throw new Error("only numeric terms of one column can be smoothed");
  const weights = term.values.map((_, k) => weightOf(term, k));
  const total = sum(weights);
  let before = 0;
  const ranks = weights.map((weight) => ((before += weight) - 0.5 * weight) / total);
  const columns = term.values[0].map((_, c) => {
    const column = term.values.map((own) => own[c]);
    const means = ranks.map((rank) => {
      const near = ranks.map((other, k) => weights[k] * Math.exp(-0.5 * ((rank - other) / bandwidth) ** 2));
      return sum(near.map((weight, k) => weight * column[k])) / sum(near);
    });
    const shift = sum(weights.map((weight, k) => weight * (column[k] - means[k]))) / total;
    return means.map((own) => own + shift);
  });
  const values = term.values.map((_, k) => columns.map((column) => column[k]));
  const slopes = term.slopes.map((own, k) => own.map((slope, c) => (values[k][c] === term.values[k][c] ? slope : 0)));
  return changedTerm(term, { values, labels: relabelled(term, values), slopes, bounds: boundsOf(term, slopes), grouped: false });
}

function zero(term) {
  const nothing = term.values[0].map(() => 0);
  const changes = { values: term.values.map(() => nothing), labels: term.labels.map(() => 0) };
  if (term.kind === "pair") return changedTerm(term, changes);
  const slopes = changes.values;
  return changedTerm(term, { ...changes, slopes, bounds: boundsOf(term, slopes), missing: term.missing && nothing });
}

// A term that is dropped stays in its place, where it adds nothing, until the file is written without it.
const drop = (term) => ({ ...zero(term), isDropped: true });

const EDITS = { set_piece: setPiece, merge: mergePieces, smooth, make_monotone: makeMonotone, zero, drop };

// The model after one edit; the same model if the edit changes nothing.
function edited(model, edit) {
  const t = model.terms.findIndex((term) => term.name === edit.term);
  if (model.terms[t].isDropped) throw new Error("this term is dropped; undo that first");
  const term = EDITS[edit.edit](model.terms[t], edit);
  if (term === model.terms[t]) return model;
  return { ...model, terms: model.terms.map((own, k) => (k === t ? term : own)) };
}

// The file -------------------------------------------------------------------------------------------------

// JSON as Python's json.dumps(sort_keys=True, separators=(",", ":")) writes it. `Raw` text is kept as it is.
class Raw {
  constructor(text) {
    this.text = text;
  }
}

function canonical(value) {
  if (value instanceof Raw) return value.text;
  if (typeof value === "number") return repr(value);
  if (typeof value === "string") {
    const escaped = (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0");
    return JSON.stringify(value).replace(/[^\x20-\x7e]/g, escaped);
  }
  if (Array.isArray(value)) return "[" + value.map(canonical).join(",") + "]";
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const names = Object.keys(value).sort(byCodePoint);
  return "{" + names.map((name) => canonical(name) + ":" + canonical(value[name])).join(",") + "}";
}

const byCodePoint = (a, b) => {
  const [x, y] = [Array.from(a), Array.from(b)];
  const k = x.findIndex((c, i) => c !== y[i]);
  if (k < 0) return x.length - y.length;
  return k >= y.length ? 1 : x[k].codePointAt(0) - y[k].codePointAt(0);
};

// The content of the file: what JavaScript might write otherwise than Python is copied as text.
function fileContent(model, raw, edits) {
  const metadata = { ...model.content.metadata };
  const known = metadata.edits === undefined ? [] : metadata.edits;
  if (Array.isArray(known) && edits.length) metadata.edits = [...known, ...edits];
  const noted = Object.entries(metadata).map(([name, value]) => [
    name, name === "edits" ? value : new Raw(raw.metadata[name]),
  ]);
  const content = {
    ...model.content,
    classes: new Raw(raw.classes),
    metadata: Object.fromEntries(noted),
    terms: model.terms.map((term, t) => (term.isDropped ? [] : [termOut(term, raw.terms[t], edits.length > 0)])).flat(),
  };
  content.loss = new Raw(raw.loss);
  if (edits.length) content.training_loss = "NaN";
  return content;
}

function termOut(term, raw, isEdited) {
  const item = { ...term.item };
  for (const name of Object.keys(raw)) item[name] = new Raw(raw[name]);
  if (!isEdited) return item;
  item.loss_drop = "NaN";
  if (term.kind === "pair") item.gain = "NaN";
  else item.jump_facts = [];
  if (!term.isEdited) return item;
  const out = (own) => (term.nOutputs === 1 ? own[0] : own);
  if (term.kind === "pair") {
    const rows = (cells) => {
      const n = term.axes[1].nBins;
      return term.axes[0].nBins ? Array.from({ length: cells.length / n }, (_, i) => cells.slice(n * i, n * i + n)) : [];
    };
    return { ...item, values: rows(term.values.map(out)), labels: rows(term.labels) };
  }
  return {
    ...item,
    values: term.values.map(out),
    missing_value: term.missing && out(term.missing),
    labels: term.labels,
    grouped: term.grouped,
    slopes: term.slopes.map(out),
    bounds: term.bounds.map((own) => own.map(numberOut)),
  };
}

// The text of the file, with the checksum that rbr.load compares, where the browser can compute one.
async function modelFile(model, raw, edits) {
  const content = fileContent(model, raw, edits);
  if (globalThis.crypto && crypto.subtle) {
    const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(canonical(content)));
    content.checksum = "sha256:" + Array.from(new Uint8Array(digest), (b) => b.toString(16).padStart(2, "0")).join("");
  }
  return canonical(content) + "\n";
}
