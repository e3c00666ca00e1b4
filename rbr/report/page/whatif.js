// What if: a row, its prediction, how the terms add up to it, and what moving a value does.

const MOST_BARS = 10;

function whatifSection(state) {
  const form = h("form", { class: "inputs", "aria-label": "The values of the row", onsubmit: (event) => event.preventDefault() });
  const result = h("div", { class: "result" });
  const order = state.columns.map((column) => column);
  const weight = (column) => Math.max(...column.sides.map(({ term }) => importance(term)));
  order.sort((a, b) => weight(b) - weight(a));
  const node = section("whatif", "What if",
    h("p", {}, "Pick a row or enter one, move a value, and watch the prediction."),
    rowPicker(state, () => fill()),
    h("div", { class: "split" }, form, result));
  const update = () => showResult(state, result);
  const fill = () => {
    form.replaceChildren(...order.map((column) => input(state, column, update)));
    update();
  };
  state.refreshWhatif = update;
  state.refillWhatif = () => {
    node.querySelector(".picker").replaceWith(rowPicker(state, fill));
    fill();
  };
  fill();
  return node;
}

function rowPicker(state, onpick) {
  if (!state.sample) return h("p", { class: "picker note" }, "The report carries no rows; this is a typical one.");
  const n = state.sample.rows.length;
  const which = h("input", { type: "number", min: 1, max: n, value: state.chosen + 1, onchange: () => pick(Number(which.value) - 1) });
  const pick = (k) => {
    state.chosen = Math.min(Math.max(k || 0, 0), n - 1);
    which.value = state.chosen + 1;
    chooseRow(state);
    onpick();
  };
  const step = (by, label) => h("button", { type: "button", "aria-label": label, onclick: () => pick(state.chosen + by) }, by < 0 ? "‹" : "›");
  return h("p", { class: "picker tools" }, h("label", { class: "field" }, h("span", {}, "Row"), which), h("span", {}, `of ${n.toLocaleString("en")} in ${state.sample.name}`), step(-1, "The row before"), step(1, "The next row"),
    h("button", { type: "button", onclick: () => pick(state.chosen) }, "Restore"));
}

function chooseRow(state) {
  const { sample } = state;
  state.row = { ...(sample ? sample.rows[state.chosen] : typicalRow(state.columns)) };
  state.offset = sample && sample.offset ? sample.offset[state.chosen] : null;
  state.before = scoresOf(state.model, state.row, state.offset);
}

function input(state, column, update) {
  const id = `in-${column.index}`;
  const name = h("label", { for: id, title: column.name }, oneLine(column.name));
  const set = (value) => {
    state.row[column.index] = value;
    update();
  };
  if (!column.isNumeric) return h("div", { class: "input" }, name, levelSelect(state, column, id, set));
  const value = state.row[column.index];
  const [low, high] = rangeOf(state, column);
  const digits = (x) => String(Number(x.toPrecision(6)));
  const box = h("input", { id, type: "text", inputmode: "decimal", value: isNaN(value) ? "" : digits(value), placeholder: "missing", autocomplete: "off" });
  const slider = h("input", { type: "range", min: 0, max: 1000, value: place(value, low, high), "aria-label": `Move ${column.name}` });
  const described = () => slider.setAttribute("aria-valuetext", box.value || "missing");
  box.addEventListener("input", () => {
    const text = box.value.trim().toLowerCase();
    const isBad = text !== "" && !NUMBER.test(text) && !(text in INFINITE) && !ABSENT.has(text);
    box.setAttribute("aria-invalid", String(isBad));
    if (isBad) return;
    const own = csvNumber(text, column.name);
    slider.value = place(own, low, high);
    described();
    set(own);
  });
  slider.addEventListener("input", () => {
    const x = low + ((high - low) * slider.value) / 1000;
    const own = isWhole(column) ? Math.round(x) : Number(x.toPrecision(4));
    box.value = digits(own);
    box.setAttribute("aria-invalid", "false");
    described();
    set(own);
  });
  described();
  return h("div", { class: "input" }, name, box, slider);
}

const place = (value, low, high) => (isNaN(value) ? 500 : (1000 * (Math.min(Math.max(value, low), high) - low)) / (high - low || 1));

// Whether the edges of the bins lie between whole numbers.
const isWhole = (column) => column.sides.every(({ side }) => side.edges.length > 0 && side.edges.every((x) => Math.abs(x * 2 - Math.round(x * 2)) < 1e-9));

function rangeOf(state, column) {
  const main = column.sides.find(({ term }) => term.kind !== "pair");
  if (main) {
    const view = state.views[main.t];
    return isWhole(column) ? [Math.floor(view.low), Math.ceil(view.high)] : [view.low, view.high];
  }
  const { edges } = column.sides[0].side;
  const [low, high] = edges.length ? [edges[0], edges[edges.length - 1]] : [-1, 1];
  const pad = (high - low || Math.abs(low) || 1) * 0.2;
  return [low - pad, high + pad];
}

function levelSelect(state, column, id, set) {
  const value = state.row[column.index];
  const { side, term, k } = column.sides[0];
  const known = isMissing(value) ? -1 : levelPosition(side, column.levels.map((level) => level.value), value);
  const options = column.levels.map((level, p) => h("option", { value: p, selected: p === known }, level.text));
  options.push(h("option", { value: "missing", selected: isMissing(value) }, "missing"));
  const other = known < 0 && !isMissing(value) ? value : "\u0000unseen";
  options.push(h("option", { value: "other", selected: known < 0 && !isMissing(value) }, known < 0 && !isMissing(value) ? `${oneLine(value)} (not in training)` : "a level not in training"));
  const node = h("select", { id, onchange: () => set(node.value === "missing" ? null : node.value === "other" ? (other === "\u0000unseen" ? "a level not in training" : other) : column.levels[Number(node.value)].value) }, options);
  return node;
}

// The result -----------------------------------------------------------------------------------------------

function showResult(state, node) {
  const { model, texts, row, offset } = state;
  const told = rowInWords(model, texts, row, { offset, output: state.explained });
  const prediction = predictionOf(texts.link, told.scores);
  if (!node.firstChild) {
    state.headline = h("p", { class: "headline", role: "status", "aria-live": "polite" });
    state.reasons = h("ul", { class: "reasons" });
    state.waterfall = picture("A waterfall: how the terms add up to the score; the table below has the numbers", 320, () => waterfallPicture(state));
    node.append(state.headline,
      model.nOutputs > 1 ? select("Explain the score of", ["the predicted class", ...texts.labels], 0, (k) => {
        state.explained = k ? k - 1 : null;
        showResult(state, node);
      }) : "",
      state.waterfall,
      alternative("Table", () => waterfallTable(state)),
      h("h3", {}, "Reasons"), state.reasons);
  }
  state.told = told;
  state.headline.replaceChildren(h("strong", {}, headlineOf(texts, prediction)), h("span", {}, changeOf(texts, state.before, told.scores)));
  state.reasons.replaceChildren(h("li", { class: "head" }, told.head), ...[...told.reasons, told.tail, ...told.unseen].filter(Boolean).map((text) => h("li", {}, text)));
  const open = node.querySelector("details.alternative[open]");
  if (open) open.replaceChildren(open.firstChild, waterfallTable(state));
  redraw([state.waterfall]);
}

function headlineOf(texts, prediction) {
  if (!texts.classes) return `${texts.target}: ${general(prediction[0], 5)}`;
  const k = texts.link === "logit" ? 1 : prediction.indexOf(Math.max(...prediction));
  return `${texts.classes[k]}: ${percentFine(prediction[k])}`;
}

const percentFine = (p) => general(100 * p, 3) + "%";

function changeOf(texts, before, scores) {
  const change = Math.max(...scores.map((z, c) => Math.abs(z - before[c])));
  if (change < 1e-12) return " as picked";
  const [was, is] = [before, scores].map((z) => predictionOf(texts.link, z));
  if (!texts.classes) return ` ${signed(is[0] - was[0])} from the row as picked`;
  const k = texts.link === "logit" ? 1 : is.indexOf(Math.max(...is));
  return ` ${signed(100 * (is[k] - was[k]))} points of percentage from the row as picked`;
}

// The steps of the waterfall: from the intercept over the largest terms to the score.
function waterfallSteps(state) {
  const { told: own, model, row } = state;
  const start = told(model.intercept, own.output) + (state.offset ? told(state.offset, own.output) : 0);
  const shown = own.order.slice(0, MOST_BARS);
  const rest = own.order.slice(MOST_BARS);
  const steps = [{ name: "start", base: 0, change: start, isTotal: true }];
  let at = start;
  for (const t of shown) {
    steps.push({ name: toldValue(model.terms[t], row).replaceAll(" is ", " = "), base: at, change: own.effects[t] });
    at += own.effects[t];
  }
  if (rest.length) {
    const change = sum(rest.map((t) => own.effects[t]));
    steps.push({ name: counted(rest.length, "smaller term"), base: at, change });
    at += change;
  }
  steps.push({ name: "score", base: 0, change: at, isTotal: true });
  return steps;
}

function waterfallPicture(state) {
  const steps = waterfallSteps(state);
  const y = steps.map((_, k) => k);
  const fill = steps.map((own) => (own.isTotal ? color("quiet") : own.change >= 0 ? color("accent") : color("class-1")));
  const ends = steps.slice(1).flatMap((own) => [own.base, own.base + own.change]);
  const [low, high] = [Math.min(0, ...ends, steps[0].change), Math.max(0, ...ends, steps[0].change)];
  const pad = (state.isNarrow() ? 0.34 : 0.16) * (high - low || 1);
  return {
    height: 60 + 27 * steps.length,
    data: [{
      type: "bar", orientation: "h", y, base: steps.map((own) => own.base), x: steps.map((own) => own.change), width: 0.66, marker: { color: fill },
      text: steps.map((own) => (own.isTotal ? general(own.change, 3) : signed(own.change))), textposition: "outside", cliponaxis: false, textfont: { size: 11, color: color("ink") },
      hoverinfo: "text", hovertext: steps.map((own) => `${wrapped(own.name)}<br>${own.isTotal ? general(own.change, 5) : signed(own.change, 4)}`),
    }],
    layout: layout({
      margin: { l: 20, r: 20, t: 4, b: 34 },
      xaxis: axis({ range: [low - pad, high + pad], zeroline: true, zerolinecolor: color("quiet"), nticks: 6, title: titled(scaleLabel(state)) }),
      yaxis: axis({ tickvals: y, ticktext: steps.map((own) => plotText(elided(own.name, state.isNarrow() ? 20 : 34))), autorange: "reversed", showgrid: false }),
    }),
  };
}

const waterfallTable = (state) => table("How the terms add up", ["", "adds", "sum"],
  waterfallSteps(state).map((own) => [own.name, own.isTotal ? "" : signed(own.change, 4), general(own.base + own.change, 4)]), { numbers: [1, 2] });
