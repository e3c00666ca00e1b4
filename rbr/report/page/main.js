// The page: unpack the content, put the sections together, navigation and theme.

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

function startState(content) {
  const model = readModel(content.model, content.texts);
  const state = {
    content, model, base: model, edits: [], texts: content.texts, raw: content.raw, views: content.views, bands: content.bands,
    columns: usedColumns(model), sample: readSample(content.sample), chosen: 0, output: 0, explained: null, yRange: null,
    isNarrow: () => window.innerWidth < 640,
  };
  chooseRow(state);
  return state;
}

function build(state) {
  const { content } = state;
  const hasTerms = state.model.terms.length > 0;
  const sections = [
    overviewSection(state),
    hasTerms ? termsSection(state) : null,
    hasTerms ? whatifSection(state) : null,
    content.quality ? qualitySection(state) : null,
    content.path ? pathSection(state) : null,
    content.scorecard && hasTerms ? scorecardSection(state) : null,
    hasTerms ? editorSection(state) : null,
  ].filter(Boolean);
  byId("main").replaceChildren(...sections, h("footer", {}, `Written by rbr ${content.model.rbr_version}. Pictures by plotly.js, © Plotly, Inc., MIT licence. The page is complete in itself: no request leaves it.`));
  byId("nav").replaceChildren(...sections.map((own) => h("a", { href: `#${own.id}` }, own.querySelector("h2").textContent)));
  followSections(sections);
}

// The link of the section in view is marked.
function followSections(sections) {
  const observer = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      const link = document.querySelector(`#nav a[href="#${target.id}"]`);
      if (isIntersecting) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }, { rootMargin: "-30% 0px -65% 0px" });
  sections.forEach((own) => observer.observe(own));
}

const DARK = window.matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme || (DARK.matches ? "dark" : "light")) === "dark";

function setUpTheme() {
  byId("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    redraw();
  });
  DARK.addEventListener("change", () => redraw());
}

async function start() {
  try {
    const content = await unpacked(byId("content").textContent);
    const state = startState(content);
    build(state);
    setUpTheme();
    let width = window.innerWidth;
    window.addEventListener("resize", () => {
      if (window.innerWidth !== width) redraw();
      width = window.innerWidth;
    });
    // For those who script the page.
    window.rbr = { state, readModel, scoresOf, contributions, predictionOf, rowInWords, edited, modelFile, piecesOf, waterfallSteps, general, repr };
    document.documentElement.dataset.ready = "true";
  } catch (error) {
    byId("main").replaceChildren(h("p", { class: "error" }, `The report cannot be shown: ${error.message}`));
    throw error;
  }
}

start();
