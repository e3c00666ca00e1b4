// Pictures by plotly: what they share, when they are drawn, and how loud a piece is.

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';
const CONFIG = { displayModeBar: false, responsive: true, scrollZoom: false, doubleClick: false };

// In a picture text may hold a few tags, so what could be one is escaped.
const plotText = (text) => oneLine(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const classColor = (c) => color(`class-${c % 8}`);

function withAlpha(hex, alpha) {
  const [r, g, b] = [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
  return `rgba(${r},${g},${b},${alpha})`;
}

// What a piece's rows can say decides how loudly it is drawn: [least rows, opacity].
const LOUDNESS = [[100, 1], [30, 0.65], [10, 0.45], [0, 0.28]];
const loudness = (rows) => LOUDNESS.find(([least]) => rows >= least)[1];
// A piece of fewer rows does not decide how far the axis reaches.
const FEW_ROWS = 30;

function axis(extra = {}) {
  return {
    zeroline: false, showline: false, gridcolor: color("line"), linecolor: color("line"), tickcolor: color("line"),
    tickfont: { size: 11, color: color("quiet") }, title: { font: { size: 12, color: color("quiet") } },
    fixedrange: true, automargin: true, ...extra,
  };
}

function layout(extra = {}) {
  return {
    font: { family: FONT, color: color("ink"), size: 12 },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 44, r: 12, t: 8, b: 36 }, showlegend: false, hovermode: "closest", dragmode: false,
    hoverlabel: { bgcolor: color("panel"), bordercolor: color("line"), align: "left", font: { family: FONT, size: 12, color: color("ink") } },
    ...extra,
  };
}

const titled = (text) => ({ text: plotText(text), font: { size: 12, color: color("quiet") }, standoff: 8 });

// Every picture of the page. It is drawn when it comes into view, and again when the theme or the model changes.
const pictures = new Set();
const watcher = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    target.isNear = isIntersecting;
    if (isIntersecting && target.isStale) draw(target);
  }
}, { rootMargin: "300px" });

// A figure with a picture; `make` gives {data, layout}, and `label` says what a reader would see.
function picture(label, height, make) {
  const node = h("div", { class: "plot", role: "img", "aria-label": label, style: `height:${height}px` });
  Object.assign(node, { make, isStale: true });
  pictures.add(node);
  watcher.observe(node);
  return node;
}

function draw(node) {
  Object.assign(node, { isStale: false, wasDrawn: true });
  const { data, layout: own, height } = node.make(node.clientWidth);
  if (height) node.style.height = `${height}px`;
  return Plotly.react(node, data, { ...own, height: undefined }, CONFIG);
}

function redraw(which = pictures) {
  for (const node of which) {
    if (!node.isConnected && node.wasDrawn) {
      pictures.delete(node);
      watcher.unobserve(node);
    } else {
      node.isStale = true;
      if (node.isNear) draw(node);
    }
  }
}

// How far an axis of values reaches: pieces of few rows may stick out a little, not decide.
function valueRange(pieces) {
  const ends = (own) => own.flatMap((piece) => piece.span);
  const known = ends(pieces.filter((piece) => piece.rows >= FEW_ROWS));
  const all = ends(pieces);
  let [low, high] = known.length ? [Math.min(...known), Math.max(...known)] : [Math.min(...all), Math.max(...all)];
  [low, high] = [Math.min(low, 0), Math.max(high, 0)];
  const span = high - low || 1;
  low = Math.max(Math.min(...all, low), low - 0.3 * span);
  high = Math.min(Math.max(...all, high), high + 0.3 * span);
  const pad = 0.07 * (high - low || 1);
  return [low - pad, high + pad];
}
