// Rows: the embedded sample, a CSV file that is dropped onto the page, and a typical row where there is none.

// The used columns, ascending: index, name, and the terms or axes that know its bins.
function usedColumns(model) {
  const names = model.content.feature_names_in;
  const found = new Map();
  model.terms.forEach((term, t) =>
    sidesOf(term).forEach((side, k) => {
      const index = term.columns[k];
      if (!found.has(index)) found.set(index, { index, name: names ? names[index] : `x${index}`, sides: [] });
      found.get(index).sides.push({ side, term, t, k });
    }));
  return [...found.values()].sort((a, b) => a.index - b.index).map((column) => {
    const first = column.sides[0];
    column.isNumeric = isNumeric(first.side);
    column.levels = column.isNumeric ? [] : levelsOf(first);
    return column;
  });
}

function levelsOf({ side, term, k }) {
  const values = term.kind === "pair" ? side.groups.flat() : term.categories;
  const texts = term.kind === "pair" ? term.texts.levels[k] : term.texts.levels;
  return values.map((value, i) => ({ value, text: texts[i] }));
}

// A row in the middle of the training data: medians, and the most frequent levels.
function typicalRow(columns) {
  const row = {};
  for (const column of columns) {
    const { side, term } = column.sides[0];
    if (term.kind === "pair") {
      row[column.index] = column.isNumeric ? side.edges[side.edges.length >> 1] || 0 : side.groups[0][0];
      continue;
    }
    const shares = term.shares.slice(0, term.values.length);
    if (column.isNumeric) {
      let total = 0;
      const half = sum(shares) / 2;
      row[column.index] = term.positions[shares.findIndex((share) => (total += share) >= half)];
    } else {
      row[column.index] = term.categories.length ? term.categories[shares.indexOf(Math.max(...shares))] : null;
    }
  }
  return row;
}

function readSample(sample) {
  if (!sample) return null;
  const rows = sample.index.map(() => ({}));
  for (const { column, values, levels, codes } of sample.columns) {
    const known = levels && levels.map((level) => (level === null ? null : levelIn(level)));
    rows.forEach((row, i) => {
      const own = known ? known[codes[i]] : values[i];
      row[column] = known ? own : own === null ? NaN : number(own);
    });
  }
  return { ...sample, rows, name: "the embedded sample" };
}

// The cells of a CSV text, by row. Quotes may enclose commas, newlines and doubled quotes.
function parseCsv(text) {
  const rows = [[]];
  const cell = /("(?:[^"]|"")*"|[^,\r\n]*)(,|\r\n|\n|\r|$)/y;
  const source = text.replace(/^\ufeff/, "");
  while (cell.lastIndex < source.length) {
    const [, own, end] = cell.exec(source) || fail("the file is no CSV: a quote is not closed");
    rows[rows.length - 1].push(own.startsWith('"') ? own.slice(1, -1).replaceAll('""', '"') : own);
    if (end === ",") {
      if (cell.lastIndex === source.length) rows[rows.length - 1].push("");
    } else rows.push([]);
  }
  return rows.filter((row) => row.length > 1 || (row.length === 1 && row[0] !== ""));
}

const fail = (message) => {
  throw new Error(message);
};

const ABSENT = new Set(["", "na", "nan", "null", "none", "n/a"]);
const INFINITE = { inf: Infinity, "+inf": Infinity, infinity: Infinity, "-inf": -Infinity, "-infinity": -Infinity };

function csvNumber(text, name) {
  const own = text.trim().toLowerCase();
  if (ABSENT.has(own)) return NaN;
  if (own in INFINITE) return INFINITE[own];
  if (!NUMBER.test(own)) fail(`column ${name} holds ${JSON.stringify(text)}, which is no number`);
  return Number(own);
}

// The rows of a CSV file, with the target if the file has a column of its name, and with the columns of weights and of
// offsets that the user names.
function readCsv(text, name, columns, texts, target, { weight, offset } = {}) {
  const [head, ...lines] = parseCsv(text);
  const place = new Map((head || []).map((own, k) => [own, k]));
  for (const column of columns) if (!place.has(column.name)) fail(`${name} has no column ${column.name}`);
  const rows = lines.map((line) => {
    const row = {};
    for (const column of columns) {
      const cell = line[place.get(column.name)] ?? "";
      row[column.index] = column.isNumeric ? csvNumber(cell, column.name) : ABSENT.has(cell.toLowerCase()) && !column.levels.some((level) => level.value === cell) ? null : cell;
    }
    return row;
  });
  if (!rows.length) fail(`${name} has no rows`);
  const beside = (own, what, isAllowed) => (own === undefined ? null : lines.map((line, i) => {
    const value = csvNumber(line[place.get(own)] ?? "", own);
    return isAllowed(value) ? value : fail(`column ${own} of ${name} holds ${line[place.get(own)]} in row ${i + 1}; ${what}`);
  }));
  const weights = beside(weight, "weights must be finite and not negative", (value) => value >= 0 && value < Infinity);
  if (weights && !sum(weights)) fail(`column ${weight} of ${name} holds no weight above 0`);
  const offsets = beside(offset, "offsets must be finite", Number.isFinite);
  return {
    rows, index: rows.map((_, i) => i), n_given: rows.length, name, names: head, weight: weights,
    y: csvTarget(lines, place.get(target), texts), offset: offsets && offsets.map((value) => [value]),
  };
}

// Classes by their positions; null if the file does not have the target, or has it otherwise.
function csvTarget(lines, place, texts) {
  if (place === undefined) return null;
  const cells = lines.map((line) => line[place] ?? "");
  const y = texts.classes ? cells.map((cell) => texts.labels.indexOf(cell)) : cells.map((cell) => (NUMBER.test(cell.trim()) ? Number(cell) : NaN));
  return y.every((own) => (texts.classes ? own >= 0 : !isNaN(own))) ? y : null;
}
