"""`python -m rbr` is the `rbr` command."""

from rbr.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
