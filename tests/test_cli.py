"""The rbr command, and the demo it runs."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

import rbr
from rbr import cli, plotting
from rbr._text import BLOCKS, PLAIN_BLOCKS
from rbr.cli import demo

SMALL = ["demo", "--n-rows", "400", "--n-features", "12", "--n-informative", "3", "--seed", "1"]


def test_demo_tells_its_story_in_ten_lines_and_saves_a_picture(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["demo"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10 and max(map(len, lines)) <= 100
    assert lines[0].startswith("2,000 rows of 100 features. 10 of these act on the target")
    assert re.search(r"Algorithm 1 finds [0-9]+ of the 10, and [0-9]+ others?; R\^2 is 0\.9", lines[2])
    assert re.search(r"default solver finds [0-9]+ of the 10, and [0-9]+ others?; R\^2 is 0\.9", lines[3])
    assert lines[-1] == f"All that the default solver found: {demo.PICTURE}"
    assert [p.name for p in tmp_path.iterdir()] == [demo.PICTURE]
    assert (tmp_path / demo.PICTURE).read_bytes().startswith(b"\x89PNG")


def test_demo_saves_where_it_is_told(tmp_path, capsys):
    out = tmp_path / "demo.png"
    assert cli.main([*SMALL, "--out", str(out)]) == 0
    assert capsys.readouterr().out.startswith("400 rows of 12 features. 3 of these act")
    assert out.read_bytes().startswith(b"\x89PNG")


def drawn_curves(printed):
    """(feature, true curve, learned curve) of each drawn line; a space is no block."""
    return re.findall(r"^ +(\d+)  (\S+)  (\S+) +\d+%$", printed, re.M)


def test_demo_draws_the_largest_curves_in_the_terminal(capsys):
    cli.main(SMALL)
    data, solution, curves = demo.fit_planted(400, 12, 3, seed=1, solver="auto")
    drawn = drawn_curves(capsys.readouterr().out)
    by_size = sorted((curve for curve in curves if curve.planted), key=lambda curve: -curve.size)
    assert [int(feature) for feature, *_ in drawn] == [curve.feature for curve in by_size]
    _, truth, learned = drawn[0]
    heights, learned_heights = ([BLOCKS.index(block) for block in line] for line in (truth, learned))
    assert len(heights) == len(learned_heights) == demo.WIDTH
    x = np.sort(data.X[:, by_size[0].feature])[np.linspace(0, 399, demo.WIDTH).astype(int)]
    assert np.corrcoef(heights, by_size[0].truth(x))[0, 1] > 0.97
    assert np.corrcoef(heights, learned_heights)[0, 1] > 0.8


def test_demo_without_an_extra_still_shows_the_curves_and_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert cli.main(SMALL) == 0
    printed = capsys.readouterr().out
    assert len(drawn_curves(printed)) == 3
    assert printed.splitlines()[-1].endswith('pip install "rbr[plot]"')
    assert list(tmp_path.iterdir()) == []
    # It is a failure if a requested picture cannot be drawn.
    assert cli.main([*SMALL, "--out", "demo.png"]) == 1
    assert 'pip install "rbr[plot]"' in capsys.readouterr().err


def test_demo_in_a_terminal_without_blocks(tmp_path):
    plain = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-m", "rbr", *SMALL], cwd=tmp_path, capture_output=True, env=plain)
    assert done.returncode == 0, done.stderr
    drawn = drawn_curves(done.stdout.decode("ascii"))
    assert len(drawn) == 3 and all(set(truth + learned) <= set(PLAIN_BLOCKS) for _, truth, learned in drawn)


def test_demo_learns_the_curves_it_finds():
    """Acceptance test on the paper's experiment: strong curves are found and learned closely."""
    data, solution, curves = demo.fit_planted(2000, 100, 10, seed=0)
    strong = [curve for curve in curves if curve.size > 0.1]
    assert len(strong) >= 7
    assert all(curve.found and curve.error < 0.4 for curve in strong)
    assert [curve.feature for curve in curves if curve.found] == solution.support.tolist()
    assert [curve.feature for curve in curves if curve.planted] == data.support.tolist()
    assert len(solution.support) <= 10
    assert solution.loss_path[-1] < solution.loss_path[0] / 5


def test_demo_the_default_solver_ends_lower_within_the_same_limits():
    _, solution, _ = demo.fit_planted(2000, 100, 10, seed=0)
    _, other, curves = demo.fit_planted(2000, 100, 10, seed=0, solver="auto")
    assert other.loss < solution.loss and len(other.support) <= 10
    assert sum(curve.planted and curve.found for curve in curves) >= 9


def test_demo_error_is_the_relative_l2_error():
    data, solution, curves = demo.fit_planted(300, 8, 2, seed=2)
    B = rbr.Binner(max_bins=demo.BINS).fit(data.X).transform(data.X)
    functions = dict(zip(data.support.tolist(), data.functions, strict=True))
    for curve in curves:
        if curve.planted:
            j = curve.feature
            truth = functions[j](data.X[:, j]) - functions[j](data.X[:, j]).mean()
            learned = solution.f[B.offsets[j] : B.offsets[j + 1]][B.codes[j]]
            assert curve.error == pytest.approx(np.linalg.norm(learned - truth) / np.linalg.norm(truth))
            assert curve.size == pytest.approx(truth.std())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["demo", "--n-rows", "3"],
            "argument --n-rows: '3' is not allowed; it must be an integer, at least 40",
        ),
        (["demo", "--seed", "x"], "argument --seed: 'x' is not allowed"),
        (["fly"], "invalid choice: 'fly'"),
        ([], "the following arguments are required: COMMAND"),
    ],
)
def test_bad_arguments_are_named(arguments, message, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


def test_more_informative_than_features_is_refused(capsys):
    assert cli.main(["demo", "--n-features", "5", "--n-informative", "6"]) == 2
    assert "--n-informative is 6; it must be at most --n-features, 5" in capsys.readouterr().err


def test_versions(capsys):
    assert cli.main(["versions"]) == 0
    command = capsys.readouterr().out
    rbr.show_versions()
    assert command == capsys.readouterr().out


def test_version_option(capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out == f"rbr {rbr.__version__}\n"


def test_help_lists_every_command(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    printed = capsys.readouterr().out
    for command in cli.COMMANDS:
        assert re.search(rf"^\s+{command.name}\s", printed, re.M), command.name


def test_python_m_rbr_is_the_command():
    done = subprocess.run([sys.executable, "-m", "rbr", "--version"], capture_output=True, text=True, timeout=60)
    assert done.stdout == f"rbr {rbr.__version__}\n", done.stderr


# ---------------------------------------------------------------- the picture


def test_steps_jump_midway_between_rows_that_differ():
    edges, levels = plotting.step_edges([3.0, 0.0, 1.0, 2.0, 2.0], [5.0, 4.0, 4.0, 5.0, 5.0])
    np.testing.assert_array_equal(edges, [0.0, 1.5, 3.0])
    np.testing.assert_array_equal(levels, [4.0, 5.0])


def test_steps_of_a_constant():
    edges, levels = plotting.step_edges([2.0, 1.0], [7.0, 7.0])
    np.testing.assert_array_equal(edges, [1.0, 2.0])
    np.testing.assert_array_equal(levels, [7.0])


def test_figure_draws_each_curve_and_its_truth():
    x = np.linspace(-1, 1, 50)
    curves = [plotting.Curve(x, np.sign(x), f"feature {i}", truth=np.sin) for i in range(3)]
    figure = plotting.plot_curves(curves, title="three", n_columns=2)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["feature 0", "feature 1", "feature 2"]
    line = next(line for line in figure.axes[0].lines if line.get_label() == "true")
    np.testing.assert_allclose(line.get_ydata(), np.sin(line.get_xdata()))
    (steps,) = figure.axes[0].patches
    np.testing.assert_array_equal(steps.get_data().values, [-1.0, 1.0])
    assert figure.get_suptitle() == "three"


def test_no_curves_is_an_error():
    with pytest.raises(ValueError, match="curves is empty"):
        plotting.plot_curves([])
