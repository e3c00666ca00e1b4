// The terms: steps and lines over numbers, bars over categories, heat maps of pairs.

const shareText = (own) => `${percent(own.share)} of rows (${countText(own.rows)})`;

// The values of a piece in words: one, or one per class.
const valueText = (state, value) =>
  value.length === 1 ? signed(value[0], 4) : value.map((v, c) => `${plotText(state.texts.labels[c])}: ${signed(v, 3)}`).join("<br>");

function scaleLabel(state) {
  const { link, classes, target } = state.texts;
  if (link === "logit") return `log-odds of ${classes[1]}`;
  if (link === "softmax") return "score of a class";
  return link === "log" ? `log of ${target}` : target;
}

const toScale = (state) => (state.texts.link === "identity" ? "" : "the ") + scaleLabel(state);

// Neighbouring bins of one piece with one value or one line, as segments over x.
function segmentsOf(term, view) {
  const ends = [view.low, ...term.edges, view.high];
  const lines = linesOf(term);
  const pieceOf = new Map();
  piecesOf(term).forEach((piece, p) => piece.bins.forEach((k) => pieceOf.set(k, { ...piece, p })));
  const segments = [];
  term.values.forEach((value, k) => {
    const last = segments[segments.length - 1];
    const isSame = last && last.label === term.labels[k] &&
      (lines[k] ? last.line === lines[k] : !last.line && compareLists(last.value, value) === 0);
    if (isSame) {
      last.bins.push(k);
      last.x1 = ends[k + 1];
    } else segments.push({ label: term.labels[k], line: lines[k], value, bins: [k], x0: ends[k], x1: ends[k + 1], piece: pieceOf.get(k) });
  });
  for (const own of segments) {
    Object.assign(own, facts(term, own.bins));
    if (own.piece.kind !== "line" || own.line) Object.assign(own, { rows: own.piece.rows, share: own.piece.share });
    own.at = (x) => (own.line ? onLine(own.line, x) : own.value);
    own.span = [...own.at(own.x0), ...own.at(own.x1)];
  }
  return segments;
}

// The map of x onto the axis: itself, or on a scale by rank the place among the bins.
function axisMap(term, view) {
  if (view.scale !== "rank") return (x) => x;
  const ends = [view.low, ...term.edges, view.high];
  return (x) => {
    const k = Math.min(binOf(term.edges, x), ends.length - 2);
    return k + Math.min(Math.max((x - ends[k]) / (ends[k + 1] - ends[k] || 1), 0), 1);
  };
}

function pointsOf(segment, map) {
  const { x0, x1, line } = segment;
  if (!line) return [x0, x1];
  const inner = Array.from({ length: 25 }, (_, i) => x0 + ((x1 - x0) * i) / 24);
  return [...new Set([...inner, ...line.bounds.filter((x) => x > x0 && x < x1), x1])].sort((a, b) => a - b);
}

function numericPicture(state, t, width) {
  const term = state.model.terms[t];
  const [view, band] = [state.views[t], state.bands && state.bands[t]];
  const segments = segmentsOf(term, view);
  const map = axisMap(term, view);
  const missing = term.missing ? { ...facts(term, [term.values.length]), value: term.missing, span: term.missing } : null;
  const range = state.yRange || valueRange(missing ? [...segments, missing] : segments);
  const data = [];
  if (band && term.nOutputs === 1) data.push(bandTrace(term, view, band, map));
  for (let c = 0; c < term.nOutputs; c++) {
    const own = term.nOutputs > 1 ? classColor(c) : color("accent");
    data.push(...jumpTraces(segments, c, map, own, range));
    for (const [least, opacity] of LOUDNESS) {
      const [x, y] = [[], []];
      for (const segment of segments.filter((s) => loudness(s.rows) === opacity)) {
        for (const at of pointsOf(segment, map)) {
          x.push(map(at));
          y.push(clip(segment.at(at)[c], range));
        }
        x.push(null);
        y.push(null);
      }
      if (!x.length) continue;
      data.push({ x, y, mode: "lines", opacity, hoverinfo: "skip", line: { color: own, width: least >= 30 ? 2.5 : 1.5 }, connectgaps: false });
    }
    if (missing) data.push({ x: [0], y: [clip(missing.value[c], range)], xaxis: "x2", mode: "markers", opacity: loudness(missing.rows), marker: { color: own, size: 9, symbol: "diamond" }, hoverinfo: "skip" });
  }
  data.push(...farTraces(segments, map, range));
  data.push(...hoverTraces(state, term, segments, map, range, missing, band));
  data.push(densityTrace(term, view, map));
  const ticks = view.scale === "rank" ? rankTicks(term, view, width) : {};
  const label = { text: view.scale === "linear" ? "" : view.scale === "log" ? "logarithmic scale" : "every bin equally wide", font: { size: 11, color: color("quiet") }, standoff: 4 };
  const type = view.scale === "log" ? "log" : "linear";
  const domain = missing ? [0, 0.9] : [0, 1];
  return {
    data,
    layout: layout({
      xaxis: axis({ type, domain, range: endsOfAxis(term, view), showgrid: false, title: label, anchor: "y2", ...ticks }),
      xaxis2: axis({ domain: [0.92, 1], range: [-1, 1], tickvals: [0], ticktext: ["missing"], showgrid: false, anchor: "y2", visible: Boolean(missing) }),
      yaxis: axis({ domain: [0.17, 1], range, zeroline: true, zerolinecolor: color("quiet"), zerolinewidth: 1, nticks: 6 }),
      yaxis2: { domain: [0, 0.12], visible: false, rangemode: "tozero", fixedrange: true },
      hovermode: "x", hoverdistance: -1,
    }),
  };
}

const clip = (value, [low, high]) => Math.min(Math.max(value, low), high);

function endsOfAxis(term, view) {
  if (view.scale === "rank") return [-0.01 * term.values.length, 1.01 * term.values.length];
  const [low, high] = view.scale === "log" ? [Math.log10(view.low), Math.log10(view.high)] : [view.low, view.high];
  return [low - 0.02 * (high - low), high + 0.02 * (high - low)];
}

// Thin verticals between neighbours, as loud as the quieter of the two.
function jumpTraces(segments, c, map, own, range) {
  return LOUDNESS.map(([, opacity]) => {
    const [x, y] = [[], []];
    segments.slice(1).forEach((right, k) => {
      const left = segments[k];
      if (Math.min(loudness(left.rows), loudness(right.rows)) !== opacity) return;
      x.push(map(right.x0), map(right.x0), null);
      y.push(clip(left.at(left.x1)[c], range), clip(right.at(right.x0)[c], range), null);
    });
    return { x, y, mode: "lines", hoverinfo: "skip", opacity: 0.4 * opacity, line: { color: own, width: 1 } };
  }).filter((trace) => trace.x.length);
}

// Where a piece of few rows lies beyond the axis, an arrow says so.
function farTraces(segments, map, range) {
  const far = segments.flatMap((own) => {
    const middle = (own.x0 + own.x1) / 2;
    return own.at(middle).filter((v) => v < range[0] || v > range[1]).map((v) => ({ x: map(middle), v }));
  });
  if (!far.length) return [];
  return [{
    x: far.map((own) => own.x), y: far.map((own) => clip(own.v, range)), mode: "markers", hoverinfo: "skip", opacity: 0.6, cliponaxis: false,
    marker: { color: color("quiet"), size: 8, symbol: far.map((own) => (own.v > range[1] ? "triangle-up" : "triangle-down")) },
  }];
}

function bandTrace(term, view, band, map) {
  const ends = [view.low, ...term.edges, view.high];
  const x = term.values.flatMap((_, k) => [map(ends[k]), map(ends[k + 1])]);
  const side = (values) => term.values.flatMap((_, k) => [values[k][0], values[k][0]]);
  return {
    x: [...x, ...x.slice().reverse()], y: [...side(band.high), ...side(band.low).reverse()], mode: "lines", fill: "toself",
    fillcolor: withAlpha(color("accent"), 0.16), line: { width: 0 }, hoverinfo: "skip",
  };
}

// Invisible points at both ends of every segment and at the bins of lines: the nearest one tells its piece.
function hoverTraces(state, term, segments, map, range, missing, band) {
  const [x, y, text] = [[], [], []];
  for (const own of segments) {
    const inside = (own.x1 - own.x0) * 1e-6;
    const between = own.line || band ? own.bins.map((k) => term.positions[k]).filter((p) => p > own.x0 + inside && p < own.x1 - inside) : [(own.x0 + own.x1) / 2];
    for (const at of [own.x0 + inside, ...between, own.x1 - inside]) {
      const value = own.at(at);
      const k = Math.min(binOf(term.edges, at), term.values.length - 1);
      const where = own.line ? `${plotText(own.piece.text)}, at ${general(at, 4)}` : plotText(own.piece.text);
      const sure = band && term.nOutputs === 1 ? `<br>90% of refits: ${signed(band.low[k][0])} to ${signed(band.high[k][0])}` : "";
      x.push(map(at));
      y.push(clip(value[0], range));
      text.push(`<b>${where}</b><br>${valueText(state, value)}${sure}<br>${shareText(own)}`);
    }
  }
  const common = { mode: "markers", marker: { size: 14, opacity: 0, color: color("accent") }, hoverinfo: "text" };
  const traces = [{ ...common, x, y, text }];
  if (missing) traces.push({ ...common, x: [0], y: [clip(missing.value[0], range)], xaxis: "x2", text: [`<b>missing</b><br>${valueText(state, missing.value)}<br>${shareText(missing)}`] });
  return traces;
}

function densityTrace(term, view, map) {
  const ends = [view.low, ...term.edges, view.high].map(map);
  const along = view.scale === "log" ? ends.map(Math.log) : ends;
  const height = term.values.map((_, k) => Math.sqrt(term.shares[k] / Math.max(along[k + 1] - along[k], 1e-300)));
  const x = height.flatMap((_, k) => [ends[k], ends[k + 1]]);
  return { x, y: height.flatMap((own) => [own, own]), yaxis: "y2", mode: "lines", line: { width: 0, shape: "linear" }, fill: "tozeroy", fillcolor: withAlpha(color("quiet"), 0.35), hoverinfo: "skip" };
}

// Up to one tick per 60 pixels, at edges of bins.
function rankTicks(term, view, width) {
  const ends = [view.low, ...term.edges, view.high];
  const step = Math.max(1, Math.ceil(ends.length / Math.max(3, Math.floor(width / 70))));
  const places = ends.map((_, k) => k).filter((k) => k > 0 && k < ends.length - 1 && k % step === 0);
  return { tickvals: places, ticktext: places.map((k) => compact(ends[k])) };
}

// Categories: a bar for every group of levels with one value; with classes a point for each.
function categoryPicture(state, t) {
  const term = state.model.terms[t];
  const band = state.bands && state.bands[t];
  const pieces = piecesOf(term).map((own) => ({ ...own, span: own.value }));
  if (term.missing) pieces.unshift({ ...facts(term, [term.values.length]), text: "missing", value: term.missing, span: term.missing, bins: [term.values.length] });
  const range = state.yRange || valueRange(pieces);
  const y = pieces.map((_, p) => p);
  const text = pieces.map((own) => `<b>${wrapped(own.text)}</b><br>${valueText(state, own.value)}<br>${shareText(own)}`);
  const data = [];
  if (term.nOutputs === 1) {
    data.push({
      type: "bar", orientation: "h", y, x: pieces.map((own) => clip(own.value[0], range)), text, textposition: "none", hoverinfo: "text",
      width: pieces.map((own) => 0.25 + 0.5 * loudness(own.rows)),
      marker: { color: color("accent"), opacity: pieces.map((own) => loudness(own.rows)), line: { width: 0 } },
    });
    if (band) {
      const low = pieces.map((own) => Math.min(...own.bins.map((k) => band.low[k][0])));
      const high = pieces.map((own) => Math.max(...own.bins.map((k) => band.high[k][0])));
      data.push({ x: low.flatMap((v, p) => [v, high[p], null]), y: y.flatMap((p) => [p, p, null]), mode: "lines", hoverinfo: "skip", opacity: 0.6, line: { color: color("ink"), width: 1 } });
    }
    data.push(...farBars(pieces, range));
  } else {
    for (let c = 0; c < term.nOutputs; c++) {
      data.push({ mode: "markers", y, x: pieces.map((own) => clip(own.value[c], range)), text, hoverinfo: "text", name: state.texts.labels[c], marker: { color: classColor(c), size: 10, opacity: pieces.map((own) => loudness(own.rows)) } });
    }
  }
  return {
    data,
    height: 54 + 26 * pieces.length,
    layout: layout({
      margin: { l: 20, r: 16, t: 6, b: 32 },
      xaxis: axis({ range, zeroline: true, zerolinecolor: color("quiet"), nticks: 6 }),
      yaxis: axis({ tickvals: y, ticktext: pieces.map((own) => plotText(elided(own.text, 26))), showgrid: false, range: [-0.6, pieces.length - 0.4] }),
    }),
  };
}

function farBars(pieces, range) {
  const far = pieces.map((own, p) => ({ v: own.value[0], p })).filter(({ v }) => v < range[0] || v > range[1]);
  if (!far.length) return [];
  return [{ x: far.map(({ v }) => clip(v, range)), y: far.map(({ p }) => p), mode: "markers", hoverinfo: "skip", cliponaxis: false, marker: { color: color("quiet"), size: 8, symbol: far.map(({ v }) => (v > 0 ? "triangle-right" : "triangle-left")) } }];
}

// A list of levels over several lines, so that a label of a picture is not wider than the page.
function wrapped(text, width = 44) {
  const lines = [""];
  for (const part of oneLine(text).split(", ")) {
    const last = lines[lines.length - 1];
    if (last && last.length + part.length > width) lines.push(part);
    else lines[lines.length - 1] = last ? `${last}, ${part}` : part;
  }
  const shown = lines.length > 8 ? [...lines.slice(0, 7), "…"] : lines;
  return shown.map((line) => plotText(elided(line, 80))).join("<br>");
}

// A pair: cells equally wide; what few rows support is faded towards the background.
function pairPicture(state, t, width) {
  const term = state.model.terms[t];
  const [a, b] = term.axes;
  const cell = (i, j) => i * b.nBins + j;
  const grid = (of) => Array.from({ length: a.nBins }, (_, i) => Array.from({ length: b.nBins }, (_, j) => of(cell(i, j))));
  const pieceOf = [];
  piecesOf(term).forEach((piece) => piece.bins.forEach((k) => (pieceOf[k] = piece)));
  const z = grid((k) => term.values[k][state.output % term.nOutputs]);
  const known = grid((k) => (pieceOf[k].rows >= FEW_ROWS ? Math.abs(term.values[k][state.output % term.nOutputs]) : 0)).flat();
  const limit = Math.max(...known) || Math.max(...z.flat().map(Math.abs)) || 1;
  const text = grid((k) => `<b>${wrapped(pieceOf[k].text.split(" and ").join(", "))}</b><br>${valueText(state, term.values[k])}<br>${shareText(pieceOf[k])}`);
  const [x, y] = [b, a].map((side) => Array.from({ length: side.nBins }, (_, k) => k));
  const fade = grid((k) => 1 - loudness(pieceOf[k].rows));
  const paper = color("panel");
  const data = [
    { type: "heatmap", x, y, z, text, hoverinfo: "text", zmin: -limit, zmax: limit, colorscale: [[0, color("class-1")], [0.5, paper], [1, color("accent")]], colorbar: { thickness: 10, outlinewidth: 0, tickfont: { size: 10, color: color("quiet") }, nticks: 5 } },
    { type: "heatmap", x, y, z: fade, hoverinfo: "skip", showscale: false, zmin: 0, zmax: 1, colorscale: [[0, withAlpha(paper, 0)], [1, withAlpha(paper, 1)]] },
  ];
  const ticks = (side, term, k, most) => {
    const names = Array.from({ length: side.nBins }, (_, i) => binText(side, i));
    const step = Math.max(1, Math.ceil(names.length / most));
    const places = names.map((_, i) => i).filter((i) => i % step === 0);
    return { tickvals: places, ticktext: places.map((i) => plotText(elided(names[i], 14))) };
  };
  return {
    data,
    layout: layout({
      xaxis: axis({ ...ticks(b, term, 1, Math.max(2, Math.floor(width / 110))), tickangle: 0, showgrid: false, title: titled(b.name) }),
      yaxis: axis({ ...ticks(a, term, 0, 9), showgrid: false, title: titled(a.name) }),
    }),
  };
}

function binText(side, k) {
  if (k >= side.nOrdered) return "missing";
  if (side.groups) return side.groups[k].map(String).join(", ");
  const words = side.edges.map((x) => general(x, 4));
  return interval(k > 0 ? words[k - 1] : undefined, k < words.length ? words[k] : undefined);
}

function pieceRows(state, term) {
  const rows = piecesOf(term).map((own) => [own.text, ...pieceCells(own), percent(own.share), countText(own.rows)]);
  if (term.missing) {
    const own = facts(term, [term.values.length]);
    rows.push(["missing", ...term.missing.map((v) => signed(v, 4)), percent(own.share), countText(own.rows)]);
  }
  return rows;
}

const pieceCells = (own) => own.value.map((v, c) =>
  own.line ? `${signed(own.ends[0][c])} to ${signed(own.ends[1][c])}` : signed(v, 4));

function pieceTable(state, term) {
  const values = term.nOutputs === 1 ? ["adds"] : state.texts.labels;
  const head = ["range", ...values, "share", "rows"];
  return table(`The pieces of ${oneLine(term.name)}`, head, pieceRows(state, term), { numbers: head.map((_, k) => k).slice(1) });
}

function termPicture(state, t) {
  const term = state.model.terms[t];
  const label = `${oneLine(term.name)}: what it adds to ${toScale(state)}. The table below says the same.`;
  const heights = { numeric: 270, pair: 330 };
  const make = { numeric: numericPicture, category: categoryPicture, pair: pairPicture }[term.kind];
  return picture(label, heights[term.kind] || 54 + 26 * (piecesOf(term).length + 1), (width) => make(state, t, width));
}

function termCard(state, t) {
  const term = state.model.terms[t];
  const n = piecesOf(term).length;
  const used = state.bands && state.bands[t] ? `, used in ${percent(state.bands[t].used)} of refits` : "";
  const pieces = term.kind === "pair" && n === term.values.length && n > 1 ? `${term.axes[0].nBins} × ${term.axes[1].nBins} cells` : counted(n, "piece");
  return h("article", { class: `card ${term.kind}`, id: `term-${t}`, "data-term": term.name },
    h("h3", {}, oneLine(term.name)),
    h("p", { class: "note" }, `${pieces}; mean |effect| ${general(importance(term), 3)}${used}`),
    termPicture(state, t),
    alternative("Table", () => pieceTable(state, state.model.terms[t])));
}

function termsSection(state) {
  const order = state.model.terms.map((_, t) => t).sort((a, b) => importance(state.model.terms[b]) - importance(state.model.terms[a]));
  const cards = h("div", { class: "cards" }, order.map((t) => termCard(state, t)));
  const filter = h("input", {
    type: "search", placeholder: "Find a term", "aria-label": "Find a term",
    oninput: () => {
      const wanted = filter.value.toLowerCase();
      for (const card of cards.children) card.hidden = !card.dataset.term.toLowerCase().includes(wanted);
    },
  });
  const same = h("input", {
    type: "checkbox",
    onchange: () => {
      state.yRange = same.checked ? valueRange(state.model.terms.filter((term) => term.kind !== "pair").flatMap((term) => piecesOf(term).map((own) => ({ rows: own.rows, span: own.ends ? own.ends.flat() : own.value })))) : null;
      redraw(cards.querySelectorAll(".plot"));
    },
  });
  const classes = state.model.nOutputs > 1 ? h("p", { class: "legend" }, "Classes: ", state.texts.labels.map((label, c) => h("span", { class: "key" }, h("i", { style: `background:var(--class-${c % 8})` }), label))) : null;
  const pairs = state.model.nOutputs > 1 && state.model.terms.some((term) => term.kind === "pair")
    ? select("Heat maps show", state.texts.labels, state.output, (c) => {
        state.output = c;
        redraw(cards.querySelectorAll(".pair .plot"));
      }) : null;
  return section("terms", "Terms",
    h("p", {}, `What each column adds to ${toScale(state)}, the most important first. The grey strip is the density of the training rows (on a square-root scale). Point at a picture, or open its table.`),
    h("p", { class: "legend" }, "Drawn by what its rows can say: ",
      [["100 rows or more", 1], ["30 to 100", 0.65], ["10 to 30", 0.45], ["fewer", 0.28]].map(([label, opacity]) => h("span", { class: "key" }, h("i", { class: "stroke", style: `opacity:${opacity}` }), label)),
      h("span", { class: "key" }, "▲ beyond the axis, on few rows"), state.bands ? h("span", { class: "key" }, h("i", { class: "band" }), "90% of bootstrap refits") : null),
    classes,
    h("div", { class: "tools" }, state.model.terms.length > 6 ? filter : null, h("label", { class: "check" }, same, "Same scale for all"), pairs),
    cards);
}
