"""Which library reads and writes tables: pyarrow, or pandas where that is not installed."""

from __future__ import annotations

from rbr.cli.console import Refusal


def library() -> str:
    """ "pyarrow" or "pandas"; a Refusal says what to install if there is neither."""
    for name in ("pyarrow", "pandas"):
        try:
            __import__(name)
        except ImportError:
            continue
        return name
    raise Refusal('reading tables needs pyarrow or pandas: pip install "rbr[cli]"')
