// The editor: change pieces, see what it does to the rows, undo, and save the model with the list of edits.

function editorSection(state) {
  state.editTerm = [...state.model.terms.keys()].sort((a, b) => importance(state.model.terms[b]) - importance(state.model.terms[a]))[0];
  const chooser = select("Term", state.model.terms.map((term) => oneLine(term.name)), state.editTerm, (t) => {
    state.editTerm = t;
    fresh();
  });
  const holder = h("div", { class: "edit-term" });
  const effect = h("div", { class: "effect" });
  const list = h("div", { class: "edits" });
  const message = h("p", { class: "message", role: "status", "aria-live": "polite" });
  const say = (text, isError = false) => {
    message.textContent = text;
    message.classList.toggle("error", isError);
  };
  const apply = (edit) => {
    try {
      const model = edited(state.model, edit);
      if (model === state.model) return say("That changes nothing.");
      state.edits.push(edit);
      setModel(state, model);
      fresh();
      say(editText(edit, state));
    } catch (error) {
      say(error.message, true);
    }
  };
  const undo = () => {
    const last = state.edits.pop();
    setModel(state, state.edits.reduce(edited, state.base));
    fresh();
    say(`Undone: ${editText(last, state)}`);
  };
  const fresh = () => {
    holder.replaceChildren(...editTerm(state, apply, say));
    list.replaceChildren(...editList(state, undo, say));
    showEffect(state, effect);
  };
  state.refreshEditor = fresh;
  state.apply = apply;
  const drop = fileDrop(state, say, fresh);
  const node = section("edit", "Edit",
    h("p", {}, "Set a piece by number, merge pieces, make a term monotone or smooth, or take it out. Nothing leaves this page; the edited model is saved as a file, which rbr.load reads, with the list of edits."),
    message, h("div", { class: "tools" }, chooser), h("div", { class: "split wide" }, holder, h("div", {}, list, effect, drop)));
  fresh();
  return node;
}

function setModel(state, model) {
  state.model = model;
  state.columns = usedColumns(model);
  document.querySelectorAll(".stale").forEach((node) => (node.hidden = !state.edits.length));
  state.refreshWhatif();
  document.querySelectorAll("#terms .plot, #overview .plot").forEach((node) => (node.isStale = true));
  redraw(document.querySelectorAll("#terms .plot, #overview .plot"));
  document.querySelectorAll("#terms details[open]").forEach((node) => (node.open = false));
}

function editText(edit, state) {
  const piece = edit.text ? ` ${edit.text}` : "";
  if (edit.edit === "set_piece") return `${oneLine(edit.term)}: ${edit.piece === "missing" ? "missing" : `piece ${edit.piece}`}${piece} set to ${[edit.value].flat().map((v) => general(v, 4)).join(", ")}`;
  if (edit.edit === "merge") return `${oneLine(edit.term)}: pieces ${edit.pieces.join(", ")} merged`;
  if (edit.edit === "make_monotone") return `${oneLine(edit.term)}: made ${edit.increasing ? "increasing" : "decreasing"}`;
  if (edit.edit === "smooth") return `${oneLine(edit.term)}: smoothed over ${general(100 * edit.bandwidth, 3)}% of the rows`;
  if (edit.edit === "zero") return `${oneLine(edit.term)}: set to zero`;
  if (edit.edit === "drop") return `${oneLine(edit.term)}: dropped`;
  return `${edit.edit}${edit.term ? ` of ${oneLine(edit.term)}` : ""}`;
}

function editTerm(state, apply, say) {
  const term = state.model.terms[state.editTerm];
  const name = term.name;
  const chosen = new Set();
  const heads = ["", "range", ...(term.nOutputs === 1 ? ["adds"] : state.texts.labels), "rows"];
  const rowOf = (key, own, value) => {
    const boxes = value.map((v, c) => h("input", {
      type: "text", inputmode: "decimal", value: String(Number(v.toPrecision(6))), "aria-label": `What ${own.text} adds${term.nOutputs > 1 ? ` to ${state.texts.labels[c]}` : ""}`,
      onchange: () => {
        const numbers = boxes.map((box, k) => (box.value === String(Number(value[k].toPrecision(6))) ? value[k] : NUMBER.test(box.value.trim()) ? Number(box.value) : NaN));
        if (numbers.some(isNaN)) return say(`${JSON.stringify(boxes[c].value)} is no number`, true);
        apply({ edit: "set_piece", term: name, piece: key, value: term.nOutputs === 1 ? numbers[0] : numbers });
      },
    }));
    const mark = key === "missing" ? null : h("input", { type: "checkbox", "aria-label": `Choose ${own.text}`, onchange: () => chosen[mark.checked ? "add" : "delete"](key) });
    const kind = own.line ? h("span", { class: "note" }, " line") : null;
    return h("tr", { style: `--loud:${loudness(own.rows)}` }, h("td", {}, mark), h("th", { scope: "row", title: own.text }, elided(own.text, 60), kind), boxes.map((box) => h("td", { class: "number" }, box)), h("td", { class: "number" }, countText(own.rows)));
  };
  const rows = piecesOf(term).map((own, p) => rowOf(p, own, own.value));
  if (term.missing) rows.push(rowOf("missing", { ...facts(term, [term.values.length]), text: "missing" }, term.missing));
  if (term.isDropped) return [h("p", { class: "note" }, `${oneLine(name)} is dropped: the saved model does not have it.`)];
  const simple = (edit, label) => h("button", { type: "button", onclick: () => apply({ edit, term: name }) }, label);
  const width = h("input", { type: "text", inputmode: "decimal", value: "5", size: "3", "aria-label": "Width of smoothing, in % of the rows" });
  const smoothing = () => h("span", {}, h("button", { type: "button", onclick: () => apply({ edit: "smooth", term: name, bandwidth: NUMBER.test(width.value.trim()) ? Number(width.value) / 100 : NaN }) }, "Smooth"), " over ", width, " % of the rows");
  const monotone = (increasing, label) => h("button", { type: "button", onclick: () => apply({ edit: "make_monotone", term: name, increasing }) }, label);
  return [
    termPicture(state, state.editTerm),
    h("p", { class: "tools" }, h("button", { type: "button", onclick: () => apply({ edit: "merge", term: name, pieces: [...chosen].sort((a, b) => a - b) }) }, "Merge the chosen pieces"),
      term.kind === "numeric" ? [monotone(true, "Make increasing"), monotone(false, "Make decreasing"), smoothing()] : null,
      simple("zero", "Set to zero"), simple("drop", "Drop the term")),
    h("div", { class: "scroll pieces", tabindex: "0", role: "region", "aria-label": `The pieces of ${name}` },
      h("table", {}, h("caption", {}, "A changed number is taken when you leave its field. A line becomes a constant."), h("thead", {}, h("tr", {}, heads.map((head, k) => h("th", { scope: "col", class: k > 1 ? "number" : null }, head)))), h("tbody", {}, rows))),
  ];
}

function editList(state, undo, say) {
  const known = state.model.content.metadata.edits;
  const items = [...(Array.isArray(known) ? known : []), ...state.edits];
  return [
    h("h3", {}, "Edits"),
    items.length ? h("ol", {}, items.map((edit) => h("li", {}, edit && typeof edit === "object" ? editText(edit, state) : oneLine(edit)))) : h("p", { class: "note" }, "None yet."),
    h("p", { class: "tools" }, h("button", { type: "button", disabled: !state.edits.length, onclick: undo }, "Undo the last"),
      h("button", { type: "button", class: "primary", onclick: () => saveModel(state, say) }, "Save the model")),
  ];
}

async function saveModel(state, say) {
  const text = await modelFile(state.model, state.raw, state.edits);
  const link = h("a", { href: URL.createObjectURL(new Blob([text], { type: "application/json" })), download: "model.json" });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  say(`Saved as model.json, with ${counted(state.edits.length, "edit")}. Read it with rbr.load("model.json").`);
}

// What the edits do to the rows ----------------------------------------------------------------------------

function rowScores(state, model) {
  return state.sample.rows.map((row, i) => scoresOf(model, row, state.sample.offset && state.sample.offset[i]));
}

// The prediction that is drawn: of two classes that of the second, of several that of the chosen one.
const drawn = (state, scores) => {
  const own = predictionOf(state.texts.link, scores);
  return state.texts.link === "logit" ? own[1] : own[state.texts.link === "softmax" ? state.output : 0];
};

function showEffect(state, node) {
  if (!state.sample) return node.replaceChildren(h("p", { class: "note" }, "The report carries no rows. Drop a CSV file below to see what edits do to its predictions."));
  if (!state.edits.length) return node.replaceChildren(h("p", { class: "note" }, `After an edit this shows what it does to the ${counted(state.sample.rows.length, "row")} of ${state.sample.name}.`));
  const [before, after] = [state.base, state.model].map((model) => rowScores(state, model));
  const [p, q] = [before, after].map((scores) => scores.map((own) => drawn(state, own)));
  const change = q.map((v, i) => v - p[i]);
  const n = change.filter((v, i) => Math.abs(v) > 1e-12 * (1 + Math.abs(p[i]))).length; // the rest is rounding
  const mean = (values) => sum(values) / values.length;
  const largest = change.reduce((most, v, i) => (Math.abs(v) > Math.abs(change[most]) ? i : most), 0);
  const what = state.texts.classes ? `the probability of ${state.texts.classes[state.texts.link === "logit" ? 1 : state.output]}` : state.texts.target;
  const losses = [before, after].map((scores) => lossOf(state, scores));
  const facts = [
    ["rows that change", `${n} of ${change.length}`, ""],
    [`mean of ${what}`, general(mean(p), 4), general(mean(q), 4)],
    ["mean size of the change", "", general(mean(change.map(Math.abs)), 3)],
    ["largest change", "", `${signed(change[largest])} (row ${largest + 1})`],
  ];
  if (losses[0]) losses[0].forEach(([name, value], k) => facts.push([name, general(value, 4), general(losses[1][k][1], 4)]));
  node.replaceChildren(
    h("h3", {}, `What it does to ${state.sample.name}`),
    table("Before and after the edits", ["", "before", "after"], facts, { numbers: [1, 2], id: "effect-table" }),
    picture(`Each row's prediction before and after the edits`, 280, () => ({
      data: [
        { x: [Math.min(...p), Math.max(...p)], y: [Math.min(...p), Math.max(...p)], mode: "lines", hoverinfo: "skip", line: { color: color("quiet"), width: 1, dash: "dot" } },
        { x: p, y: q, mode: "markers", marker: { size: 5, color: color("accent"), opacity: 0.5 }, hoverinfo: "text", text: p.map((v, i) => `row ${i + 1}<br>before ${general(v, 4)}<br>after ${general(q[i], 4)}`) },
      ],
      layout: layout({ xaxis: axis({ title: titled("before") }), yaxis: axis({ title: titled("after") }) }),
    })));
}

function lossOf(state, scores) {
  const { y, weight } = state.sample;
  if (!y) return null;
  const v = weight || y.map(() => 1);
  const mean = (of) => sum(y.map((own, i) => v[i] * of(own, i))) / sum(v);
  if (!state.texts.classes) return [["RMSE", Math.sqrt(mean((own, i) => (own - predictionOf(state.texts.link, scores[i])[0]) ** 2))]];
  const all = scores.map((own) => predictionOf(state.texts.link, own));
  const top = (own) => own.indexOf(Math.max(...own));
  return [["log-loss", mean((own, i) => -Math.log(Math.max(all[i][own], 1e-300)))], ["accuracy", mean((own, i) => (top(all[i]) === own ? 1 : 0))]];
}

function fileDrop(state, say, fresh) {
  let dropped = null;
  let accepted = {};
  const take = async (file) => {
    dropped = { text: await file.text(), name: file.name };
    beside.replaceChildren();
    read({});
  };
  const read = (chosen) => {
    try {
      state.sample = readCsv(dropped.text, dropped.name, state.columns, state.texts, state.model.content.target, chosen);
      askForBeside((accepted = chosen));
      state.sample.rows.forEach((row) => contributions(state.model, row)); // an ambiguous level is refused here
      state.chosen = 0;
      chooseRow(state);
      state.refillWhatif();
      fresh();
      say(`Read ${counted(state.sample.rows.length, "row")} of ${dropped.name}.`);
    } catch (error) {
      if (beside.childNodes.length) askForBeside(accepted); // what was refused is not chosen
      say(error.message, true);
    }
  };
  // Which columns of the file are weights and, where there is one score, offsets.
  const beside = h("p", { class: "tools" });
  const askForBeside = (chosen) => {
    const { names } = state.sample;
    const chooser = (label, what) => select(label, ["none", ...names.map(oneLine)], names.indexOf(chosen[what]) + 1, (k) => read({ ...chosen, [what]: names[k - 1] }));
    beside.replaceChildren(chooser("Weights", "weight"), ...(state.model.intercept.length === 1 ? [chooser("Offsets", "offset")] : []));
  };
  const box = h("input", { type: "file", accept: ".csv,text/csv", id: "file", onchange: () => box.files.length && take(box.files[0]) });
  const node = h("div", { class: "drop" }, h("label", { for: "file" }, "Rows from a CSV file: drop it here, or choose it"), box, beside);
  const mark = (event, isOver) => {
    event.preventDefault();
    node.classList.toggle("over", isOver);
  };
  node.addEventListener("dragover", (event) => mark(event, true));
  node.addEventListener("dragleave", (event) => mark(event, false));
  node.addEventListener("drop", (event) => {
    mark(event, false);
    if (event.dataTransfer.files.length) take(event.dataTransfer.files[0]);
  });
  return node;
}
