"""Smoke tests of the benches that take minutes, on tables that take seconds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHES = Path(__file__).parents[1] / "benches"

pytestmark = pytest.mark.skipif(not BENCHES.is_dir(), reason="the benches are not part of an installation")


def run(script, *arguments):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, BENCHES / script, *arguments], env=env, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_peers(tmp_path):
    out = run("peers.py", "--quick", "--jobs", "1", "--peers", "rbr-limits", "binning", "one-hot", "--out", tmp_path)
    facts = json.loads((tmp_path / "peers.json").read_text())
    assert (tmp_path / "peers.md").read_text().strip() == out.strip()
    assert set(facts["results"]) == {"300x12", "200x500"}
    for size, results in facts["results"].items():
        assert set(results) == {"rbr-limits", "binning", "one-hot"}
        for known in results.values():
            assert known["seconds"] > 0 and known["repeats"] == 1 and "note" not in known
        rbr = results["rbr-limits"]
        assert rbr["used"] <= facts["sizes"][size]["limits"]["max_features"]
        assert 0 <= rbr["found"] <= rbr["used"]
        assert rbr["score"] <= 1
    assert facts["results"]["300x12"]["rbr-limits"]["score"] > 0.5
    assert "signal to noise variance 16" in out


def test_a_peer_that_is_not_there_is_left_out_with_a_note(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(BENCHES))
    peers = __import__("peers")
    monkeypatch.setitem(peers.PEERS, "glum", ("glum", "no_such_package_here", None))
    monkeypatch.setattr(sys, "argv", ["peers.py", "--sizes", "300x12", "--peers", "glum", "--repeats", "1"])
    peers.main()
    assert "glum: no_such_package_here is not installed, left out." in capsys.readouterr().out


def test_an_ebm_beyond_the_limit_is_extrapolated(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHES))
    peers = __import__("peers")
    measured = {"10000x20": {"ebm": {"seconds": 10.0}}, "100000x20": {"ebm": {"seconds": 100.0}}}
    size = peers.SIZES["1000000x20"]
    assert peers.extrapolated(size, measured, limit=900) == pytest.approx(1000.0)
    assert peers.extrapolated(size, measured, limit=1100) is None
    assert peers.extrapolated(peers.SIZES["100000x20"], measured, limit=1) is None
    assert peers.extrapolated(peers.SIZES["1000000x100"], measured, limit=1) is None


def test_scaling():
    out = run("scaling.py", "--quick", "--repeats", "1")
    for what in ("rows", "columns", "bins", "s_G", "s_L"):
        assert out.count(f"| {what} |") == 3  # two values, one exponent
