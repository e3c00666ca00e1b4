"""Check the output folder of `rbr experiments --quick`, run without data.

python .ci/check_experiments.py FOLDER
"""

import json
import re
import sys
from pathlib import Path

from rbr.experiments.items import ITEMS
from rbr.experiments.run import VERDICTS

# The results that even a quick run must give: (item, how the claim begins, verdict).
CERTAIN = (
    (1, "Income against age has a hump", "yes"),
    (2, "With n = 2000 and p = 100 the learned tables follow", "yes"),
    (3, "From n = 1400 on, RBR finds 8 of the 10", "yes"),
    (4, "On planted labels RBR-PC and RBR-PL are substantially better", "yes"),
)
NEED_DATA = (5, 6)


def check(condition: bool, message: str) -> None:
    if not condition:
        raise SystemExit(f"check_experiments: {message}")


def refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def check_files(folder: Path) -> None:
    """Every item has strict JSON, and a picture if it has numbers."""
    for item in ITEMS:
        file = folder / f"{item.stem}.json"
        check(file.exists(), f"{file.name} is missing")
        record = json.loads(file.read_text(), parse_constant=refuse)
        check("failed" not in record, f"item {item.number} failed: {record.get('failed')}")
        check(("numbers" in record) == (item.number not in NEED_DATA), f"{file.name} holds {sorted(record)}")
        picture = file.with_suffix(".png")
        check(picture.exists() == ("numbers" in record), f"{picture.name}: there or not, against {file.name}")
        if picture.exists():
            check(picture.read_bytes().startswith(b"\x89PNG"), f"{picture.name} is no PNG")


def read_claims(page: str) -> list[tuple[int, str, str]]:
    """(item, claim, verdict) of each row of the table."""
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in page.splitlines() if re.match(r"\| \d+\. ", line)]
    claims = []
    for row in rows:
        check(len(row) == 3, f"a row has {len(row)} cells: {row}")
        claim, _, verdict = (cell.strip() for cell in row)
        number, _, text = claim.partition(". ")
        claims.append((int(number), text, verdict))
    return claims


def check_claims(claims: list[tuple[int, str, str]]) -> None:
    """Every item has a row, every verdict is one of the four, and the claims in CERTAIN have theirs."""
    for number, text, verdict in claims:
        check(verdict in VERDICTS, f"item {number}, {text!r}: the verdict is {verdict!r}")
        check((verdict == "not run") <= (number in NEED_DATA), f"item {number}, {text!r}, was not run")
    missing = {item.number for item in ITEMS} - {number for number, _, _ in claims}
    check(not missing, f"RESULTS.md has no row of the items {sorted(missing)}")
    for number, beginning, expected in CERTAIN:
        found = [verdict for item, text, verdict in claims if item == number and text.startswith(beginning)]
        check(bool(found), f"item {number} has no claim that begins {beginning!r}")
        check(set(found) == {expected}, f"item {number}, {beginning!r}: {found}, not {expected}")


def main(folder: Path) -> None:
    check_files(folder)
    claims = read_claims((folder / "RESULTS.md").read_text())
    check_claims(claims)
    print(f"{len(ITEMS)} items and {len(claims)} claims, as they should be")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
