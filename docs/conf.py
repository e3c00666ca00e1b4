"""How Sphinx builds the site: `.ci/docs FOLDER` builds it in a temporary folder, with warnings as errors."""

import os
import re
import sys
from pathlib import Path

import rbr

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # for apipage

import apipage  # noqa: E402

project = "rbr"
author = "The rbr developers"
copyright = author  # noqa: A001 - Sphinx's name
version = release = rbr.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_gallery.gen_gallery",
]

# ---------------------------------------------------------------- pages

root_doc = "index"
exclude_patterns = ["_build", "gallery", "**/README.*", "sg_execution_times.rst"]
templates_path = ["_templates"]
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(sklearn|numpy|scipy|pandas|matplotlib|dask)\..*")]
suppress_warnings = ["config.cache"]  # functions in autosummary_context
smartquotes = False  # u' is a table
default_role = "code"  # docstrings quote names in single backticks
highlight_language = "none"  # blocks without a language are formulas and commands
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist"]

html_theme = "furo"
html_title = "rbr"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {"navigation_with_keys": True}
html_copy_source = False
html_show_sphinx = False

# Files outside this folder that become pages of the site.
PAGES_FROM_ELSEWHERE = {
    "benches/RESULTS.md": "measured.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
}


def relocated(text: str, home: str, page: str) -> str:
    """The text with links that were relative to its file `home`, now relative to the page that shows it.

    Links to files that become pages lead to these pages, so that one link works in the repository and on the site.
    """

    def target(link: re.Match) -> str:
        path, anchor = link[1], link[2] or ""
        file = os.path.normpath(os.path.join(os.path.dirname(home), path))
        shown = PAGES_FROM_ELSEWHERE.get(file) or (file.removeprefix("docs/") if file.startswith("docs/") else None)
        return f"]({os.path.relpath(shown, os.path.dirname(page) or '.')}{anchor})" if shown else link[0]

    return re.sub(r"\]\(([^)#:\s]+)(#[^)]*)?\)", target, text)


def write_pages_from_elsewhere():
    for file, page in PAGES_FROM_ELSEWHERE.items():
        text = relocated((HERE.parent / file).read_text(encoding="utf-8"), file, page)
        (HERE / page).write_text(text, encoding="utf-8")


def lead_to_pages(app, name, source):
    if f"{name}.md" not in PAGES_FROM_ELSEWHERE.values():
        source[0] = relocated(source[0], f"docs/{name}.md", f"{name}.md")


# ---------------------------------------------------------------- the API

autosummary_generate = True
autosummary_ignore_module_all = False
autosummary_context = {"own_members": apipage.own_members}
autodoc_typehints = "none"  # the docstrings name the types
numpydoc_show_class_members = False  # the templates list them
numpydoc_class_members_toctree = False
add_module_names = False

IN_BACKTICKS = re.compile(r"(`[^`]*`)")


def mean_what_they_say(app, what, name, obj, options, lines):
    """Docstrings are plain text: bars and a final underscore mean themselves, not substitutions and links."""
    in_example = False
    for i, line in enumerate(lines):
        in_example = line.lstrip().startswith(">>>") or (in_example and bool(line.strip()))
        is_field = re.match(r"\s*[\w, *]+ :( |$)", line) or re.fullmatch(r"\s*\w+", line)
        if not in_example and not is_field:
            parts = IN_BACKTICKS.split(line)
            parts[::2] = [re.sub(r"\||(?<=\w)_(?!\w)", r"\\\g<0>", part) for part in parts[::2]]
            lines[i] = "".join(parts)


# ---------------------------------------------------------------- the gallery

os.environ["MPLBACKEND"] = "Agg"
sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "examples",
    "filename_pattern": r"\.py$",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "min_reported_time": 1,
    "remove_config_comments": True,
    "within_subsection_order": "FileNameSortKey",
    "image_scrapers": ("matplotlib",),
    "matplotlib_animations": False,
    "capture_repr": ("_repr_html_", "__repr__"),
    "show_signature": False,
}


def setup(app):
    app.connect("source-read", lead_to_pages)
    app.connect("autodoc-process-docstring", mean_what_they_say, priority=400)  # before numpydoc
    apipage.write(HERE / "api.rst")
    write_pages_from_elsewhere()
