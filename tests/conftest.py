"""Settings of the whole suite: hypothesis without deadlines, repeatable in CI; pictures without a screen."""

import os

from hypothesis import settings

# Matplotlib reads this when it is first imported, in subprocesses too.
os.environ["MPLBACKEND"] = "Agg"

# A shared machine may stall for a second at any place: a deadline would test the machine.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
