// Elements of the page. All text goes in as text, never as HTML.

function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

const byId = (id) => document.getElementById(id);

function section(id, title, ...children) {
  return h("section", { id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), ...children);
}

// A table; columns of numbers are aligned to the right.
function table(caption, head, rows, { numbers = [], id = null } = {}) {
  const align = (k) => (numbers.includes(k) ? "number" : null);
  const cells = (row) => row.map((cell, k) =>
    k === 0 ? h("th", { scope: "row", class: align(k) }, cell) : h("td", { class: align(k) }, cell));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", { id },
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, head.map((name, k) => h("th", { scope: "col", class: align(k) }, name)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, cells(row))))));
}

// The table that says what a picture shows, drawn up when it is opened.
function alternative(label, make) {
  const node = h("details", { class: "alternative" }, h("summary", {}, label));
  node.addEventListener("toggle", () => {
    if (!node.open) return;
    node.querySelectorAll(":scope > :not(summary)").forEach((own) => own.remove());
    node.append(make());
  });
  return node;
}

const elided = (text, longest = 28) => {
  const own = oneLine(text);
  if (own.length <= longest) return own;
  const tail = Math.floor(((longest - 1) * 2) / 5);
  return own.slice(0, longest - 1 - tail) + "…" + own.slice(own.length - tail);
};

function select(label, options, chosen, onchange) {
  const node = h("select", { onchange: () => onchange(Number(node.value)) },
    options.map((text, k) => h("option", { value: k, selected: k === chosen }, text)));
  return h("label", { class: "field" }, h("span", {}, label), node);
}
