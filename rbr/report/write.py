"""One file of HTML: page, styles, scripts, the plotting library, the model and the sample of rows."""

from __future__ import annotations

import base64
import gzip
import html
import json
import os
import tempfile
import warnings
import webbrowser
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rbr._checks import check_int
from rbr._text import one_line
from rbr.model.file import write_whole
from rbr.report.content import model_content, plain, scorecard_content
from rbr.report.quality import quality_content
from rbr.report.rows import given_rows, sample_content

if TYPE_CHECKING:
    from rbr.estimators import Bootstrap
    from rbr.model import AdditiveModel

MAX_ROWS = 1000
# What mail and most viewers take without complaint.
MOST_BYTES = 5_000_000
LIBRARY = "plotly-cartesian.min.js"
SCRIPTS = (
    "numbers",
    "model",
    "edits",
    "words",
    "rows",
    "dom",
    "plots",
    "terms",
    "overview",
    "whatif",
    "editor",
    "main",
)


def write_report(model: AdditiveModel, file: str | os.PathLike, X: Any = None, y: Any = None, **options: Any) -> Path:
    """See `AdditiveModel.report`."""
    text = report_page(model, X, y, **options)
    write_whole(file, text.encode())
    return Path(file)


def show_report(model: AdditiveModel, X: Any = None, y: Any = None, **options: Any) -> Path:
    """See `AdditiveModel.show`."""
    folder = Path(tempfile.mkdtemp(prefix="rbr-report-"))
    file = write_report(model, folder / "report.html", X, y, **options)
    webbrowser.open(file.as_uri())
    return file


def report_page(
    model: AdditiveModel,
    X: Any = None,
    y: Any = None,
    *,
    title: str | None = None,
    sample_weight: Any = None,
    offset: Any = None,
    max_rows: int = MAX_ROWS,
    path: Sequence[tuple[int, float]] | None = None,
    bands: Bootstrap | None = None,
) -> str:
    """The text of the page."""
    check_int(max_rows, "max_rows", 0)
    if y is not None and X is None:
        raise ValueError("y is given and X is None; y is the target of the rows of X")
    if bands is not None:
        bands.check_terms(model.terms)
    rows = given_rows(model, X, y, sample_weight, offset)
    target = one_line(model.target) if model.target else None
    content: dict[str, Any] = {
        "title": title or (f"A model of {target}" if target else "A fitted model"),
        **model_content(model, bands),
        "quality": quality_content(model, rows),
        "path": _path(path),
        "scorecard": scorecard_content(model),
        "sample": sample_content(model, rows, max_rows),
    }
    text = _page(content)
    while len(text) > MOST_BYTES and content["sample"] is not None:
        max_rows = min(max_rows, len(content["sample"]["index"])) // 2
        content["sample"] = sample_content(model, rows, max_rows)
        text = _page(content)
    if len(text) > MOST_BYTES:
        warnings.warn(
            f"the report has {len(text) / 1e6:.1f} MB, even without rows: the model has {len(model.terms)} terms",
            stacklevel=4,
        )
    return text


def _path(path: Any) -> list[list[float]] | None:
    """The points of a path, checked."""
    if path is None:
        return None
    points = [plain(point) for point in path] if np.iterable(path) else []
    if not points or any(not isinstance(p, list) or len(p) != 2 or None in p for p in points):
        raise ValueError(f"path is {path!r:.60}; it must be a list of pairs (number of features, score)")
    return sorted(points)


def _page(content: dict[str, Any]) -> str:
    folder = files("rbr.report")
    scripts = "\n".join((folder / "page" / f"{name}.js").read_text("utf-8") for name in SCRIPTS)
    parts = {
        "title": html.escape(content["title"]),
        "style": (folder / "page" / "style.css").read_text("utf-8"),
        "library": (folder / "vendor" / LIBRARY).read_text("utf-8"),
        "content": _packed(content),
        "script": f'(() => {{\n"use strict";\n{scripts}\n}})();',
    }
    page = (folder / "page" / "page.html").read_text("utf-8")
    # In one pass: what is put in is never searched for further marks.
    before, *rest = page.split("{{")
    return before + "".join(parts[name] + after for name, after in (part.split("}}", 1) for part in rest))


def _packed(content: dict[str, Any]) -> str:
    """The content as compressed JSON in base64, in which no character can end a script."""
    data = json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
    return base64.b64encode(gzip.compress(data, mtime=0)).decode()
