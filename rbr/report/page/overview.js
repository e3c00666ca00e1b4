// Overview, quality on given rows, the path, and the scorecard.

function overviewSection(state) {
  const { model, texts, content } = state;
  const n = model.content.n_features_in;
  const used = new Set(model.terms.flatMap((term) => term.columns)).size;
  const rows = model.terms.length ? sum(model.terms[0].rows) : null;
  const kind = texts.classes ? (model.nOutputs === 1 ? "two classes" : `${texts.classes.length} classes`) : texts.link === "log" ? "a positive number" : "a number";
  const trained = number(model.content.training_loss);
  const tiles = [
    ["predicts", texts.target === "the prediction" ? kind : texts.target, texts.target === "the prediction" ? "" : kind],
    rows === null ? null : ["training rows", Math.round(rows).toLocaleString("en"), "by sample weight"],
    ["features", `${used}`, `of ${n.toLocaleString("en")}`],
    ["terms", `${model.terms.length}`, counted(sum(model.terms.map((term) => piecesOf(term).length)), "piece")],
    isNaN(trained) ? null : ["training loss", general(trained, 4), texts.loss.replaceAll("_", " ")],
    ...(content.quality ? content.quality.scores.slice(0, 2).map(([name, value]) => [name, value === null ? "–" : general(value, 4), counted(content.quality.n_rows, "given row")]) : []),
  ].filter(Boolean);
  const order = model.terms.map((_, t) => t).sort((a, b) => importance(model.terms[b]) - importance(model.terms[a]));
  const shown = order.slice(0, 15);
  const total = sum(model.terms.map(importance)) || 1;
  const rowsOfTable = order.map((t) => {
    const term = model.terms[t];
    const drop = number(term.item.loss_drop);
    return [oneLine(term.name), term.kind, String(piecesOf(term).length), general(importance(term), 3), percent(importance(term) / total), isNaN(drop) ? "" : general(drop, 3)];
  });
  return section("overview", "Overview",
    h("dl", { class: "tiles" }, tiles.map(([name, value, note]) => h("div", {}, h("dt", {}, name), h("dd", {}, h("strong", { title: value }, value), h("span", {}, note))))),
    h("h3", {}, "The most important terms"),
    h("p", { class: "note" }, `The mean size of what a term adds to ${toScale(state)}.${order.length > shown.length ? ` The first ${shown.length} of ${order.length}.` : ""}`),
    shown.length ? picture("The most important terms, by the mean size of what they add; the table below lists all", 40 + 26 * shown.length, () => importancePicture(model, shown)) : h("p", {}, "The model uses no column: it always predicts the same."),
    alternative("Table of all terms", () => table("All terms", ["term", "kind", "pieces", "mean |effect|", "share", "loss drop"], rowsOfTable, { numbers: [2, 3, 4, 5] })));
}

function importancePicture(model, shown) {
  const sizes = shown.map((t) => importance(model.terms[t]));
  const names = shown.map((t) => model.terms[t].name);
  return {
    data: [{
      type: "bar", orientation: "h", x: sizes, y: sizes.map((_, k) => k), hoverinfo: "text", textposition: "none",
      text: names.map((name, k) => `<b>${plotText(elided(name, 60))}</b><br>mean |effect| ${general(sizes[k], 4)}`), marker: { color: color("accent") }, width: 0.62,
    }],
    layout: layout({
      margin: { l: 20, r: 16, t: 4, b: 30 },
      xaxis: axis({ rangemode: "tozero", nticks: 6 }),
      yaxis: axis({ tickvals: names.map((_, k) => k), ticktext: names.map((name) => plotText(elided(name, 24))), autorange: "reversed", showgrid: false }),
    }),
  };
}

// Quality --------------------------------------------------------------------------------------------------

function qualitySection(state) {
  const quality = state.content.quality;
  const blocks = [block("Calibration", "In each tenth of the rows, by prediction: what was predicted and what was observed, with two standard errors.",
    () => calibrationPicture(state, quality), () => calibrationTable(state, quality))];
  if (quality.roc && quality.roc.length) blocks.push(block("ROC", "How many of the class are found, beside how many of the others are taken for it.", () => rocPicture(state, quality), () => table("Areas under the ROC curves", ["class", "AUC"], quality.roc.map((own) => [state.texts.labels[own.class ?? 1], general(own.auc, 4)]), { numbers: [1] })));
  if (quality.residuals) blocks.push(block("Residuals", "Observed less predicted, and the mean of that in each tenth of the rows.", () => residualPicture(quality), () => table("Mean residual in each tenth", ["predicted", "mean residual"], quality.residuals.group_predicted.map((v, k) => [general(v, 4), general(quality.residuals.group_residual[k], 3)]), { numbers: [0, 1] })));
  if (quality.gains) blocks.push(block("Gains", quality.kind === "classes" ? "The share of the class among the rows of the highest predictions." : "The share of the total among the rows of the highest predictions.", () => gainsPicture(quality), () => gainsTable(quality)));
  const confusion = quality.confusion ? table("Rows by class and prediction", ["class", ...state.texts.labels.map((label) => `predicted ${label}`)], quality.confusion.map((row, k) => [state.texts.labels[k], ...row.map((v) => general(v, 5))]), { numbers: state.texts.labels.map((_, k) => k + 1) }) : null;
  return section("quality", "Quality",
    h("p", {}, `On ${counted(quality.n_rows, "row")} given to the report. If these are the training rows, the numbers flatter the model.`),
    h("dl", { class: "tiles" }, quality.scores.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, h("strong", {}, value === null ? "–" : general(value, 4)), h("span", {}, ""))))),
    h("div", { class: "cards" }, blocks), confusion);
}

const block = (title, note, make, makeTable) => h("article", { class: "card" }, h("h3", {}, title), h("p", { class: "note" }, note), picture(`${title}. ${note} The table below has the numbers.`, 290, make), alternative("Table", makeTable));

function calibrationPicture(state, quality) {
  const all = quality.calibration.flatMap((own) => [...own.predicted, ...own.observed]);
  const ends = [Math.min(...all), Math.max(...all)];
  const data = [{ x: ends, y: ends, mode: "lines", hoverinfo: "skip", line: { color: color("quiet"), width: 1, dash: "dot" } }];
  quality.calibration.forEach((own, c) => data.push({
    x: own.predicted, y: own.observed, mode: "lines+markers", hoverinfo: "text", line: { width: 1.5, color: quality.calibration.length > 1 ? classColor(c) : color("accent") },
    marker: { size: 7 }, error_y: { type: "data", array: own.error.map((e) => 2 * e), thickness: 1, width: 3 },
    text: own.predicted.map((p, k) => `${quality.calibration.length > 1 ? plotText(state.texts.labels[c]) + "<br>" : ""}predicted ${general(p, 4)}<br>observed ${general(own.observed[k], 4)}<br>${counted(own.rows[k], "row")}`),
  }));
  return { data, layout: layout({ xaxis: axis({ title: titled("predicted") }), yaxis: axis({ title: titled("observed") }) }) };
}

const calibrationTable = (state, quality) => table("Calibration", ["class", "predicted", "observed", "rows"],
  quality.calibration.flatMap((own, c) => own.predicted.map((p, k) => [state.texts.classes ? state.texts.labels[quality.calibration.length > 1 ? c : 1] : state.texts.target, general(p, 4), general(own.observed[k], 4), countText(own.rows[k])])), { numbers: [1, 2, 3] });

function rocPicture(state, quality) {
  const data = [{ x: [0, 1], y: [0, 1], mode: "lines", hoverinfo: "skip", line: { color: color("quiet"), width: 1, dash: "dot" } }];
  quality.roc.forEach((own, k) => data.push({ x: own.false, y: own.true, mode: "lines", hoverinfo: "text", line: { width: 2, color: quality.roc.length > 1 ? classColor(own.class) : color("accent") }, text: own.false.map((x, i) => `${plotText(state.texts.labels[own.class ?? 1])}, AUC ${general(own.auc, 4)}<br>found ${percent(own.true[i])}, false alarms ${percent(x)}`) }));
  return { data, layout: layout({ xaxis: axis({ title: titled("false positive rate"), range: [-0.01, 1.01] }), yaxis: axis({ title: titled("true positive rate"), range: [-0.01, 1.01] }) }) };
}

function residualPicture({ residuals: own }) {
  return {
    data: [
      { x: own.predicted, y: own.residual, mode: "markers", marker: { size: 4, color: color("quiet"), opacity: 0.45 }, hoverinfo: "text", text: own.predicted.map((p, k) => `predicted ${general(p, 4)}<br>residual ${signed(own.residual[k])}`) },
      { x: own.group_predicted, y: own.group_residual, mode: "lines+markers", line: { color: color("accent"), width: 2 }, hoverinfo: "text", text: own.group_predicted.map((p, k) => `predicted ${general(p, 4)}<br>mean residual ${signed(own.group_residual[k])}`) },
    ],
    layout: layout({ xaxis: axis({ title: titled("predicted") }), yaxis: axis({ title: titled("residual"), zeroline: true, zerolinecolor: color("quiet") }) }),
  };
}

function gainsPicture({ gains }) {
  return {
    data: [
      { x: [0, 1], y: [0, 1], mode: "lines", hoverinfo: "skip", line: { color: color("quiet"), width: 1, dash: "dot" } },
      { x: gains.rows, y: gains.captured, mode: "lines", line: { color: color("accent"), width: 2 }, hoverinfo: "text", text: gains.rows.map((x, k) => `first ${percent(x)} of the rows<br>hold ${percent(gains.captured[k])}`) },
    ],
    layout: layout({ xaxis: axis({ title: titled("share of rows"), tickformat: ".0%" }), yaxis: axis({ title: titled("share captured"), tickformat: ".0%" }) }),
  };
}

function gainsTable({ gains }) {
  const at = (share) => gains.captured[gains.rows.findIndex((x) => x >= share - 1e-9)];
  return table("Gains", ["share of rows", "share captured"], [0.05, 0.1, 0.2, 0.3, 0.5, 0.7].map((share) => [percent(share), percent(at(share))]), { numbers: [0, 1] });
}

// The path -------------------------------------------------------------------------------------------------

function pathSection(state) {
  const points = state.content.path;
  const here = new Set(state.model.terms.flatMap((term) => term.columns)).size;
  return section("path", "Path",
    h("p", {}, `The score for each number of features. This model uses ${here}.`),
    picture("The score for each number of features; the table below has the numbers", 300, () => ({
      data: [
        { x: points.map(([x]) => x), y: points.map(([, y]) => y), mode: "lines+markers", line: { color: color("accent"), width: 2 }, marker: { size: 7 }, hoverinfo: "text", text: points.map(([x, y]) => `${counted(x, "feature")}<br>score ${general(y, 4)}`) },
      ],
      layout: layout({
        xaxis: axis({ title: titled("features") }), yaxis: axis({ title: titled("score") }),
        shapes: [{ type: "line", xref: "x", yref: "paper", x0: here, x1: here, y0: 0, y1: 1, line: { color: color("quiet"), width: 1, dash: "dot" } }],
      }),
    })),
    alternative("Table", () => table("The path", ["features", "score"], points.map(([x, y]) => [String(x), general(y, 5)]), { numbers: [0, 1] })));
}

// The scorecard --------------------------------------------------------------------------------------------

const CARD_HEADS = { term: "term", range: "range", value: "adds", relativity: "factor", odds_ratio: "odds ×", points: "points", rows: "rows", share: "share", positive_share: "observed", mean_target: "mean observed", exposure: "exposure", rate: "rate" };

function scorecardSection(state) {
  const card = state.content.scorecard;
  const isCard = card.columns.includes("points");
  const names = card.columns.filter((name) => name !== "kind" && !(isCard && name === "odds_ratio"));
  const place = names.map((name) => card.columns.indexOf(name));
  const shown = (name, value) => {
    if (value === null) return "";
    if (typeof value === "string") return value;
    if (name === "points") return String(value);
    if (name === "share" || name === "positive_share" || name.startsWith("share_of_")) return percent(value);
    if (name === "rows" || name === "exposure") return countText(value);
    return name.startsWith("value") ? signed(value, 3) : general(value, 4);
  };
  const groups = [];
  card.rows.forEach((row, r) => {
    const cells = place.map((k, i) => shown(names[i], row[k]));
    if (card.slopes && card.slopes[r]) cells[names.indexOf("value")] += `, and ${signed(card.slopes[r], 3)} for each unit above ${general(card.anchors[r], 4)}`;
    const last = groups[groups.length - 1];
    if (last && last.term === row[0]) last.rows.push(cells.slice(1));
    else groups.push({ term: row[0], rows: [cells.slice(1)] });
  });
  const heads = names.slice(1).map((name) => CARD_HEADS[name] || oneLine(name.replace(/^value_/, "adds to ").replace(/^share_of_/, "share of ")));
  const numeric = (k) => (k > 0 ? "number" : null);
  const bodies = groups.map((group) => h("tbody", {},
    h("tr", { class: "term" }, h("th", { scope: "rowgroup", colspan: heads.length }, group.term === "intercept" ? "start" : group.term)),
    group.rows.map((cells) => h("tr", {}, cells.map((cell, k) => (k === 0 ? h("th", { scope: "row" }, cell || "for every row") : h("td", { class: numeric(k) }, cell)))))));
  return section("scorecard", "Scorecard",
    h("p", {}, isCard ? `Add the points of the start and of one line per term. ${card.note}` : `Add the start and one line per term${state.texts.link === "log" ? "; the prediction is the exponential of the sum, so factors multiply" : ""}.`),
    h("p", { class: "stale", hidden: true }, "This card is of the model before your edits. Save the edited model and write another report for its own."),
    h("p", { class: "tools" }, h("button", { type: "button", onclick: printCard }, "Print the scorecard")),
    h("div", { class: "scroll card-table", tabindex: "0", role: "region", "aria-label": "Scorecard" },
      h("table", {}, h("caption", {}, isCard ? "Points" : "What each piece adds"), h("thead", {}, h("tr", {}, heads.map((head, k) => h("th", { scope: "col", class: numeric(k) }, head)))), bodies)),
    h("p", { class: "sign" }, "Approved by ____________________    Date ____________"));
}

function printCard() {
  document.body.classList.add("print-card");
  window.addEventListener("afterprint", () => document.body.classList.remove("print-card"), { once: true });
  window.print();
}
