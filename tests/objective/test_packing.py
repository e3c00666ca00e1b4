"""Packed tables: their cross-tabulation is that of the tables themselves."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import block_diag

from rbr.objective import packing
from rbr.objective.hessians import Merged, cross_tabulation
from rbr.objective.packing import Packing
from rbr.objective.protocol import EXACT, Groups


def codes_of(n_groups, n_rows, in_none, seed):
    """Codes of each table; those of `in_none` have rows in no group."""
    rng = np.random.default_rng(seed)
    most = [max(n, 1) + (t in in_none) if n else 1 for t, n in enumerate(n_groups)]
    return np.array([rng.integers(0, n, n_rows) for n in most], dtype=np.uint8)


@pytest.mark.parametrize("n_groups", [[2] * 9, [2, 70, 3, 4, 0, 5, 1], [90, 80], [9]])
@pytest.mark.parametrize("n_blocks", [1, 2])
def test_sums_over_digits_are_those_of_the_tables(n_groups, n_blocks, monkeypatch):
    monkeypatch.setattr(packing, "MIN_PAIRS", 0)
    n_groups, rng = np.array(n_groups), np.random.default_rng(1)
    # Only the last block has rows in no group, so that blocks must agree on the radices.
    codes = [codes_of(n_groups, 9000, {0, 2} if b == n_blocks - 1 else set(), b) for b in range(n_blocks)]
    weights = [rng.random(9000) for _ in codes]
    groups = Groups(np.arange(len(n_groups)), np.zeros(1), np.zeros(0), n_groups)
    merged = Merged.of(groups, EXACT, codes)
    plain = sum(cross_tabulation(own, groups.offsets, w, 1) for own, w in zip(codes, weights, strict=True))
    np.testing.assert_allclose(merged.cross_tabulation(weights, 1), plain, rtol=1e-12, atol=0)
    np.testing.assert_array_equal(merged.cross_tabulation(weights, 3), merged.cross_tabulation(weights, 1))
    np.testing.assert_allclose(merged.sums(weights), np.diagonal(plain), rtol=1e-12, atol=0)
    assert merged.packing.is_needed == (len(n_groups) > 2)
    # In the coordinates of some basis, and with the diagonal of other rows.
    found = merged.hessian(weights, float(np.sum(weights)), 1)
    scale, raised = rng.random(len(plain)), rng.random(len(plain))
    bases = [rng.normal(size=(n, max(n - 1, 0))) for n in n_groups]
    whole = block_diag(*bases)
    for own in (found, replace(found, scale=scale, raised=raised)):
        expected = plain if own is found else scale[:, None] * plain * scale + np.diag(raised)
        matrix, coupling = own.in_coordinates(bases, groups.offsets)
        np.testing.assert_allclose(matrix, whole.T @ expected @ whole, atol=1e-9 * np.abs(plain).max())
        np.testing.assert_allclose(coupling, whole.T @ np.diagonal(plain), atol=1e-9 * np.abs(plain).max())


def test_a_pack_has_few_codes_for_the_rows(monkeypatch):
    monkeypatch.setattr(packing, "MIN_PAIRS", 0)
    n_groups = np.full(12, 2)
    for n_rows, n_packs in ((64, 6), (1000, 4), (100_000, 2)):
        found = Packing(n_groups, [codes_of(n_groups, n_rows, set(), 0)])
        assert len(found.packs) == n_packs
        assert np.diff(found.offsets).max() ** 2 <= packing.CELLS_PER_ROW * n_rows


def test_few_rows_are_not_packed():
    n_groups = np.array([3, 2, 2])
    codes = codes_of(n_groups, 1000, {1}, 0)
    found = Packing(n_groups, [codes])
    assert not found.is_needed and found.packed(codes) is codes
    np.testing.assert_array_equal(found.offsets, [0, 3, 5, 7])
