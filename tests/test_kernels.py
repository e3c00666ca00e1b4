"""The two backends agree: every kernel of `rbr._fast` against its definition in `rbr.reference.kernels`.

The cases are in tests/cases_<part>.py, each with a dict CASES from the name of a kernel to a strategy.
"""

from importlib import import_module
from pathlib import Path

import pytest
from helpers import assert_same_bits
from hypothesis import given
from hypothesis import strategies as st

from rbr import _fast
from rbr.reference import kernels as reference

CASES = {}
for path in sorted(Path(__file__).parent.glob("cases_*.py")):
    CASES.update(import_module(path.stem).CASES)

# NumPy warns of sums of infinities of both signs and of overflow; the cases contain such sums on purpose.
pytestmark = [
    pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),
]

IN_BOTH = sorted(set(reference.__all__) & set(_fast.__all__))


def test_backends_have_the_same_kernels():
    assert sorted(_fast.__all__) == sorted(reference.__all__)


def test_every_case_is_of_a_kernel():
    assert set(CASES) <= set(reference.__all__)


@pytest.mark.parametrize("name", IN_BOTH)
@given(data=st.data())
def test_fast_agrees_with_reference(name, data):
    case = data.draw(CASES[name])
    case.assert_agree(case.call(getattr(_fast, name)), case.call(getattr(reference, name)))


@pytest.mark.parametrize("name", IN_BOTH)
@pytest.mark.parametrize("backend", [_fast, reference], ids=["fast", "reference"])
@given(data=st.data())
def test_threads_do_not_change_a_bit(name, backend, data):
    case = data.draw(CASES[name])
    kernel = getattr(backend, name)
    on_one_thread = case.call(kernel)
    for n_threads in (2, 7):
        for actual, expected in zip(case.call(kernel, n_threads), on_one_thread, strict=True):
            assert_same_bits(actual, expected)
