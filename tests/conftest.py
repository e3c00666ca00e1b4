"""Settings of the whole suite: hypothesis without deadlines and repeatable in CI, pictures without a screen.

Tests that need an optional package are skipped if it is missing. In CI no package of the extra `test` may be missing.
"""

import os
from importlib.util import find_spec

import pytest
from hypothesis import settings

OF_THE_EXTRA = (
    "pandas",
    "polars",
    "matplotlib",
    "onnx",
    "onnxruntime",
    "rich",
    "pyarrow",
    "duckdb",
    "psycopg",
    "selenium",
)
if os.environ.get("CI") and (missing := [name for name in OF_THE_EXTRA if find_spec(name) is None]):
    raise pytest.UsageError(f"in CI tests would be skipped for want of {', '.join(missing)}: install rbr[test]")

# Matplotlib reads this when it is first imported, in subprocesses too.
os.environ["MPLBACKEND"] = "Agg"

# A shared machine may stall for a second at any time, so a deadline would test the machine.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
