"""The sizes that Python and the compiled kernels share are checked when the kernels are first imported."""

import subprocess
import sys
from pathlib import Path

import pytest

import rbr
from rbr import _backend
from rbr._fast import _projections
from rbr.data import choices, design
from rbr.losses import sums
from rbr.reference.projections import SHAPES
from rbr.shapes import shape_names

COPIES = [(name, compiled, other) for name, compiled, others in _backend.SHARED_SIZES for other in others]


def changed(value):
    return value[::-1] if isinstance(value, tuple) else value + 1


@pytest.mark.parametrize("is_compiled", [False, True], ids=["Python changed", "kernels changed"])
@pytest.mark.parametrize(
    ("name", "compiled", "other"),
    COPIES,
    ids=[f"{name} of {compiled.__name__} and {other.__name__}" for name, compiled, other in COPIES],
)
def test_sizes_that_disagree_are_refused(monkeypatch, name, compiled, other, is_compiled):
    _backend.check_sizes()
    owner = compiled if is_compiled else other
    size = getattr(owner, name)
    monkeypatch.setattr(owner, name, changed(size))
    with pytest.raises(ImportError) as caught:
        _backend.check_sizes()
    message = str(caught.value)
    for part in (name, owner.__name__, repr(size), repr(changed(size)), "rebuild"):
        assert part in message


def test_kernels_of_an_older_build_without_a_size_are_refused(monkeypatch):
    monkeypatch.delattr(_projections, "SHAPES")
    with pytest.raises(ImportError, match=r"SHAPES is .* but None in the compiled rbr\._fast\._projections"):
        _backend.check_sizes()


def test_the_check_runs_at_import():
    code = "from rbr import _sizes; _sizes.TOGETHER = 5; import rbr._backend"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(rbr.__file__).parent.parent, capture_output=True, text=True, timeout=120
    )
    assert done.returncode != 0
    assert "ImportError: TOGETHER is 5 in rbr._sizes but 4 in the compiled rbr._fast._design" in done.stderr


def test_rooms_use_the_sizes_that_are_checked():
    assert sums.BLOCK_ROWS == _backend._sizes.ROWS_PER_SUM
    assert design.TOGETHER == _backend._sizes.TOGETHER
    assert choices.MAX_BINS == _backend._sizes.MAX_CODE


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_has_the_same_number_everywhere(shape):
    assert SHAPES.index(shape) == _projections.Shape[shape.upper()] == shape_names().index(shape)
