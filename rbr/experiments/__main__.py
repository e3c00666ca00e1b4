"""`python -m rbr.experiments` is `rbr experiments`."""

import sys

from rbr.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["experiments", *sys.argv[1:]]))
