"""The pages: every example of the README and of docs/ runs, and prints what the page shows.

A block of `python` is a doctest; a block of `console` is a shell session, whose lines after "$ " are run in an empty
folder. The blocks of a page share their names and their folder.
"""

import doctest
import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

from rbr.model.file import VERSION

ROOT = Path(__file__).resolve().parent.parent
SOURCES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [path.relative_to(ROOT).as_posix() for path in SOURCES]
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def read(page):
    return (ROOT / page).read_text(encoding="utf-8")


def blocks_of(text):
    """(language, content) of every fenced block; directives of the site are written in braces."""
    return re.findall(r"^(?:```|:::)(\S*)[^\n]*\n(.*?)^(?:```|:::)$", text, re.DOTALL | re.MULTILINE)


class NearNumbers(doctest.OutputChecker):
    """Numbers may differ in their last digits, which depend on the machine; everything else must be equal."""

    NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")

    def check_output(self, want, got, optionflags):
        if super().check_output(want, got, optionflags):
            return True
        texts = [" ".join(self.NUMBER.sub("#", text).split()) for text in (want, got)]
        numbers = [[float(number) for number in self.NUMBER.findall(text)] for text in (want, got)]
        return texts[0] == texts[1] and numbers[0] == pytest.approx(numbers[1], rel=1e-6)


def test_near_numbers_are_near():
    same = functools.partial(NearNumbers().check_output, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert same("x <= 0.30000000000000004  END\n", "x <= 0.3 END\n")
    assert not same("x <= 0.31 END\n", "x <= 0.3 END\n")
    assert not same("y <= 0.3 END\n", "x <= 0.3 END\n")
    assert not same("x <= 0.3\n", "x <= 0.3 4\n")


@pytest.mark.parametrize("page", PAGES)
def test_examples_of_the_pages_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = read(page)
    examples = "\n".join(content for language, content in blocks_of(text) if language == "python")
    test = doctest.DocTestParser().get_doctest(examples, {}, page, page, 0)
    assert len(test.examples) == len(re.findall(r"^\s*>>> ", text, re.M)), "a prompt outside a block of python"
    runner, report = doctest.DocTestRunner(NearNumbers(), optionflags=FLAGS), []
    runner.run(test, out=report.append)
    assert runner.failures == 0, "".join(report)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_python_is_a_session(page):
    """So that none of them is left out above."""
    blocks = [content for language, content in blocks_of(read(page)) if language in ("python", "py", "pycon")]
    assert all(content.lstrip().startswith(">>> ") for content in blocks)


def sessions_of(text):
    """(command, what it prints) of every line after "$ " in the blocks of console."""
    consoles = "".join(content for language, content in blocks_of(text) if language == "console")
    return re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", consoles, re.MULTILINE)


def run_session(sessions, folder):
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for command, printed in sessions:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env={**os.environ, "PATH": programs, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
        if printed.strip():
            found = done.stdout + done.stderr
            assert NearNumbers().check_output(printed, found, FLAGS), f"$ {command}\n{found}"


@pytest.mark.skipif(shutil.which("bash") is None, reason="the sessions of the pages are written for bash")
@pytest.mark.parametrize("page", [page for page in PAGES if sessions_of(read(page))])
def test_sessions_of_the_pages_run(page, tmp_path):
    run_session(sessions_of(read(page)), tmp_path)


@pytest.mark.skipif(shutil.which("bash") is None, reason="the sessions of the pages are written for bash")
def test_a_session_is_compared_with_what_it_prints(tmp_path):
    text = "```console\n$ echo one > file\n$ cat file\none\n```\n"
    assert sessions_of(text) == [("echo one > file", ""), ("cat file", "one\n")]
    run_session(sessions_of(text), tmp_path)
    for bad in (text.replace("\none\n", "\ntwo\n"), text.replace("cat file", "cat other")):
        with pytest.raises(AssertionError):
            run_session(sessions_of(bad), tmp_path)


# ---------------------------------------------------------------- what pages say


def medians_of_peers():
    """Tables better and worse than rbr, median pieces and seconds, from the first table of "Defaults"."""
    text = read("benches/RESULTS.md")
    table = text[text.index("| table | rbr | ebm |", text.index("## Defaults")) :].split("\n\n")[0]
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    found = {}
    for peer in header[1:-1]:
        both = [(row[1], row[header.index(peer)]) for row in rows if row[header.index(peer)]]
        scores = [tuple(float(cell.split(", ")[0]) for cell in pair) for pair in both]
        pieces, seconds = ([float(re.search(rf"([\d.]+) {unit}", cell)[1]) for _, cell in both] for unit in "ps")
        better, worse = (sum(sign * (own - ours) > 0 for ours, own in scores) for sign in (1, -1))
        found[peer] = better, worse, len(both), median(pieces), median(seconds)
    return found


def test_the_readme_and_the_comparison_quote_the_results():
    rows = medians_of_peers()
    assert set(rows) == {"rbr", "ebm", "lightgbm", "stumps", "pygam", "linear"}
    for page, first in (("README.md", "| rbr | | | "), ("docs/comparison.md", "| rbr | | | 9 | ")):
        text = read(page)
        assert f"{first}{rows['rbr'][3]:,.0f} | {rows['rbr'][4]:.2f} |" in text
        for peer, (better, worse, n, pieces, seconds) in rows.items():
            told = rf"\| {better} of {n}(?: tables)? \| {worse} \|(?: [\d.]+ \|)? {pieces:,.0f} \| {seconds:.2f} \|"
            assert peer == "rbr" or re.search(told, text), (page, peer)


def test_the_readme_is_two_screens():
    text = read("README.md")
    assert len(text.splitlines()) <= 110
    for command in ("pip install . && rbr demo", 'pip install -e ".[test]" && pytest'):
        assert f"\n{command}\n" in text


def anchors_of(text):
    """The anchors of a page's headings, as code hosts and the site make them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for link, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^):]*))?\)", read(page)):
        if page != "README.md" and (link == "api.rst" or "examples/" in link):
            continue  # made when the site is built
        target = (ROOT / page).parent / link if link else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in anchors_of(target.read_text(encoding="utf-8")), f"{link}#{anchor}"


def test_the_readme_picture_is_small():
    assert "(docs/demo.png)" in read("README.md")
    assert (ROOT / "docs" / "demo.png").stat().st_size < 150_000


def test_readers_are_told_the_version_of_files():
    assert f"The file format has version {VERSION}" in read("docs/guide/exporting.md")


def test_every_page_of_the_guide_has_a_place():
    """The guide's contents, so that a page that is added is also found."""
    listed = next(content for language, content in blocks_of(read("docs/guide/index.md")) if language == "{toctree}")
    pages = {path.stem for path in (ROOT / "docs" / "guide").glob("*.md")} - {"index"}
    assert pages <= set(listed.split())
