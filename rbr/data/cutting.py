"""Cutting columns into bins at quantiles of all rows or of a sample, a block at a time, and encoding rows."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np

from rbr._backend import kernels
from rbr._checks import check_nonnegative
from rbr._parallel import over_ranges
from rbr.data.choices import BINOMIAL, EDGES, MAX_BINS, REGULAR
from rbr.data.sampling import level_of, thinned_rows
from rbr.data.tables import ENTRIES_PER_BLOCK, ArrayTable, Table

# Up to MAX_EXACT_ROWS rows the quantiles are those of all rows. For more, a sample is taken: SAMPLE_ROWS_PER_BIN rows
# per bin, within the limits SAMPLE_ROWS, or up to twice as many. At 255 bins a bin then holds its share of the rows to
# within 7 % (one standard deviation).
MAX_EXACT_ROWS = 200_000
SAMPLE_ROWS_PER_BIN = 200
SAMPLE_ROWS = 50_000, 200_000

# Less work than this is not worth another thread.
MIN_ENTRIES_PER_THREAD = 100_000

# From this many rows on, numbers are sorted by radix sort.
MIN_ROWS_FOR_DIGITS = 1500

SECONDS_BETWEEN_REPORTS = 2.0


def n_sample_of(max_bins: np.ndarray) -> int:
    """The least size of a sample for columns of at most this many bins."""
    return int(np.clip(SAMPLE_ROWS_PER_BIN * max_bins.max(), *SAMPLE_ROWS))


def sample_level(n_rows: int, n_sample: int) -> int:
    """The level of the sample (see `thinned_rows`) whose quantiles stand for those of all rows; 0 takes all of them."""
    return level_of(n_rows, n_sample) if n_rows > MAX_EXACT_ROWS else 0


def seed_of(rng: np.random.Generator) -> int:
    """The seed of a sample: the first number that is drawn if a table has more than MAX_EXACT_ROWS rows."""
    return int(rng.integers(1 << 63))


class SampledRows:
    """Which rows a fit uses, and their weights.

    Parameters
    ----------
    n_kept : the number of rows of positive weight
    n_chosen : of those whose quantiles are taken
    weight : the weights of the chosen rows, or None if they are all 1
    kept : the rows of positive weight, or None for all
    chosen : those of them whose quantiles are taken, or None for all of the table that is cut

    Attributes
    ----------
    is_sample : whether the chosen rows are a sample of those kept
    weights : weights of the chosen rows up to a factor, or None if they are all equal
    scale : how many rows of the training table a unit of these weights (or a chosen row) stands for
    """

    def __init__(
        self,
        n_kept: int,
        n_chosen: int,
        weight: np.ndarray | None = None,
        kept: np.ndarray | None = None,
        chosen: np.ndarray | None = None,
    ):
        self.kept, self.chosen, self.n_chosen = kept, chosen, n_chosen
        self.is_sample = n_kept > MAX_EXACT_ROWS or n_chosen < n_kept
        self.weights, unit = None, 1.0
        if weight is not None:
            if (weight == weight[0]).all():
                unit = float(weight[0])
            else:
                # Dividing by a power of two is exact, and keeps sums of huge weights from overflowing.
                unit = 2.0 ** (np.frexp(weight.max())[1] - 1)
                self.weights = weight / unit
        self.scale = n_kept / n_chosen * unit

    @classmethod
    def of(cls, table: Table, sample_weight: Any, n_sample: int, rng: np.random.Generator) -> SampledRows:
        """Those of a table in memory, of which at least n_sample are used."""
        n_kept, kept, weight = table.n_rows, None, None
        if sample_weight is not None:
            weight = check_nonnegative(sample_weight, table.n_rows, "sample_weight")
            if not weight.any():
                raise ValueError("sample_weight is zero everywhere; at least one row must have a positive weight")
            if not weight.all():
                kept = np.flatnonzero(weight)
                n_kept = len(kept)
        chosen = kept
        if n_kept > MAX_EXACT_ROWS:
            sample = thinned_rows(0, n_kept, sample_level(n_kept, n_sample), seed_of(rng))
            chosen = sample if kept is None else kept[sample]
        n_chosen = table.n_rows if chosen is None else len(chosen)
        return cls(n_kept, n_chosen, weight if weight is None or chosen is None else weight[chosen], kept, chosen)


class Cutter:
    """Cuts the numeric columns of a table, block by block, on several threads.

    A block is small enough for a cache, and is read, sorted and cut by one thread; blocks do not depend on the number
    of threads. If all rows are used and codes are wanted, a block is encoded right after it is cut, so that the table
    is read once. With a sample, codes come from a second reading, which also finds the missing values.
    """

    def __init__(
        self, table, rows: SampledRows, max_bins, user_edges, rng, codes: np.ndarray | None, n_threads, verbose
    ):
        self.table, self.rows, self.sampled = table, rows, table.sample(rows.chosen)
        self.max_bins, self.user_edges, self.rng = max_bins, user_edges, rng
        self.codes, self.n_threads = codes, n_threads
        self.encodes_blocks = codes is not None and rows.chosen is None
        self.progress = Progress("cutting", table.n_features, verbose)
        self.encoding = Progress("binning", table.n_features, verbose)
        # Frames are not guaranteed to be safe to read from several threads.
        self.reading = nullcontext() if isinstance(table, ArrayTable) else threading.Lock()

    def blocks(self, method: int, start: int, stop: int) -> list[tuple]:
        """(first column, (edges, positions, n_bins), missing) of blocks that cover the columns start <= j < stop."""
        width = self.sampled.sort_width(self.rows.n_chosen)
        starts = range(start, stop, width)
        found: list[tuple] = [()] * len(starts)

        def cut_blocks(first: int, last: int) -> None:
            for block in range(first, last):
                found[block] = self._block(method, starts[block], min(starts[block] + width, stop))

        n_threads = worthwhile_threads(self.n_threads, self.rows.n_chosen * (stop - start))
        # One thread for "binomial": random numbers are drawn in the order of the columns.
        over_ranges(cut_blocks, len(starts), 1 if method == BINOMIAL else n_threads, per_call=1)
        if self.codes is not None and not self.encodes_blocks:
            return self._encoded(start, stop, found, self.codes[start:stop])
        return found

    def _block(self, method: int, start: int, stop: int) -> tuple:
        with self.reading:
            values, weights = self.sampled.columns_to_sort(start, stop, self.rows.weights, kernels().transpose)
        unsorted = values.copy() if self.encodes_blocks else values
        weights = sort_rows(values, weights)
        missing = np.isnan(values[:, -1])
        if method == EDGES:
            cut = cut_at_edges([self.user_edges[j] for j in range(start, stop)], values, weights)
        else:
            cut = self._cut(method, values, weights, self.max_bins[start:stop])
        if self.codes is not None and self.encodes_blocks:
            edges, offsets = flat_edges(*cut)
            kernels().encode(unsorted.T, edges, offsets, self.codes[start:stop], 0, len(unsorted.T))
        elif self.codes is None and self.rows.is_sample and not missing.all():
            with self.reading:
                missing = self.table.has_missing(start, stop, self.rows.kept)
        self.progress.add(stop - start)
        return start, cut, missing

    def _cut(self, method, values, weights, max_bins) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(edges, positions, n_bins) of sorted columns, by the kernel of the method."""
        n_features = len(values)
        # No more bins than values.
        most_bins = max(1, min(int(max_bins.max()), values.shape[1]))
        n_bins = np.empty(n_features, dtype=np.int64)
        outs = np.empty((n_features, most_bins - 1)), np.empty((n_features, most_bins)), n_bins
        if method == REGULAR:
            kernels().cut_regular(values, weights, max_bins, *outs, 0, n_features)
        else:
            cuts = _binomial_cuts(values, weights, max_bins, self.rows.scale, self.rng)
            kernels().cut_binomial(values, weights, cuts, *outs, 0, n_features)
        return outs

    def _encoded(self, start: int, stop: int, found: list[tuple], codes: np.ndarray) -> list[tuple]:
        """Write the codes of all rows; return the blocks with the missing values found there (NaN is n_ordered)."""
        flat = [flat_edges(*cut)[0] for _, cut, _ in found]
        n_ordered = np.concatenate([cut[2] for _, cut, _ in found])
        offsets = np.append(0, np.cumsum(n_ordered - 1))
        encode(self.table, start, stop, np.concatenate(flat), offsets, codes, self.n_threads, self.encoding)
        missing = codes.max(axis=1) == n_ordered
        if self.rows.kept is not None:
            for j in np.flatnonzero(missing):
                missing[j] = codes[j, self.rows.kept].max() == n_ordered[j]
        return [(first, cut, missing[first - start : first - start + len(cut[2])]) for first, cut, _ in found]


class Progress:
    """Prints from time to time how many columns are done, if verbose."""

    def __init__(self, what: str, n_columns: int, verbose: int):
        self.what, self.n_columns, self.verbose = what, n_columns, verbose
        self.n_done, self.start, self.said = 0, time.perf_counter(), 0.0
        self.lock = threading.Lock()

    def add(self, n_columns: int) -> None:
        if not self.verbose:
            return
        with self.lock:
            self.n_done += n_columns
            seconds = time.perf_counter() - self.start
            if seconds - self.said >= SECONDS_BETWEEN_REPORTS or (self.said and self.n_done == self.n_columns):
                self.said = seconds
                print(f"{self.what}: {self.n_done:,} of {self.n_columns:,} columns, {seconds:.1f} s", flush=True)


def runs_of_kinds(kinds: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Runs (kind, start, stop) of neighbouring features of one kind."""
    cuts = np.flatnonzero(np.diff(kinds.astype(np.int8))) + 1
    for start, stop in zip([0, *cuts.tolist()], [*cuts.tolist(), len(kinds)], strict=True):
        yield int(kinds[start]), start, stop


def worthwhile_threads(n_threads: int, n_entries: int) -> int:
    return max(1, min(n_threads, n_entries // MIN_ENTRIES_PER_THREAD))


def flat_edges(edges: np.ndarray, positions: np.ndarray, n_bins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The edges of some features in one vector, and where those of each begin."""
    return edges[np.arange(edges.shape[1]) < n_bins[:, None] - 1], np.append(0, np.cumsum(n_bins - 1))


def encode(table: Table, start: int, stop: int, edges, offsets, codes, n_threads: int, progress: Progress) -> None:
    """Write the codes of the numeric columns start <= j < stop; the edges of column j begin at offsets[j - start]."""
    encode = kernels().encode
    if table.n_rows >= stop - start or table.view_width() == 1:
        # Threads share the rows, so that a row-major table is read once, from the first row to the last.
        width = table.view_width()
        for a in range(start, stop, width):
            here = slice(a - start, min(a + width, stop) - start)
            n_ranges = worthwhile_threads(n_threads, table.n_rows * (here.stop - here.start))
            values = table.numbers(start + here.start, start + here.stop)
            over_ranges(encode, table.n_rows, n_ranges, values, edges, offsets[here.start : here.stop + 1], codes[here])
            progress.add(here.stop - here.start)
        return

    def encode_columns(first: int, last: int) -> None:
        values = table.numbers(start + first, start + last)
        encode(values, edges, offsets[first : last + 1], codes[first:last], 0, table.n_rows)
        progress.add(last - first)

    per_call = max(1, ENTRIES_PER_BLOCK // table.n_rows)
    n_ranges = worthwhile_threads(n_threads, table.n_rows * (stop - start))
    over_ranges(encode_columns, stop - start, n_ranges, per_call=per_call)


def sort_rows(values: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Sort each row in place, NaN last; returns the weights in the same order, with no columns if all are 1."""
    if weights is None:
        if values.shape[1] >= MIN_ROWS_FOR_DIGITS:
            kernels().sort_rows(values, 0, len(values))
        else:
            values.sort(axis=1)
        return np.empty((len(values), 0))
    order = np.argsort(values, axis=1, kind="stable")
    values[:] = np.take_along_axis(values, order, axis=1)
    return np.take_along_axis(weights, order, axis=1)


def _binomial_cuts(values, weights, max_bins, scale, rng):
    """Cumulated weights at which the bins of each column end: bin sizes drawn from multinomial(n, 1 / b).

    n is the number of training rows with a finite value, and the cuts are in units of `weights`.
    """
    finite = np.isfinite(values)
    finite_weight = np.where(finite, weights if weights.shape[1] else 1.0, 0.0).sum(axis=1)
    cuts = np.full((len(values), int(max_bins.max()) - 1), np.inf)
    for j, n_bins in enumerate(max_bins):
        n_rows = int(min(max(np.rint(finite_weight[j] * scale), 1.0), 2.0**53))
        sizes = rng.multinomial(n_rows, np.full(n_bins, 1.0 / n_bins))
        cuts[j, : n_bins - 1] = np.cumsum(sizes[:-1]) * (finite_weight[j] / n_rows)
    return cuts


def cut_at_edges(edges: list[np.ndarray], values: np.ndarray, weights: np.ndarray):
    """(edges, positions, n_bins) of sorted columns whose edges are given."""
    n_bins = np.array([len(own) + 1 for own in edges])
    padded = np.zeros((len(edges), n_bins.max() - 1))
    positions = np.zeros((len(edges), n_bins.max()))
    for j, own in enumerate(edges):
        padded[j, : len(own)] = own
        finite = np.isfinite(values[j])
        weight = weights[j, finite] if weights.shape[1] else np.ones(finite.sum())
        positions[j, : n_bins[j]] = _means_between(values[j, finite].astype(np.float64), weight, own)
    return padded, positions, n_bins


def _means_between(values: np.ndarray, weight: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The mean of the ascending values in each bin; for an empty bin the middle of its edges, or its only edge."""
    codes = np.searchsorted(edges, values, side="left")
    totals = np.bincount(codes, weight, minlength=len(edges) + 1)
    ends = np.concatenate([edges[:1], edges, edges[-1:]]) if len(edges) else np.zeros(2)
    means = 0.5 * ends[:-1] + 0.5 * ends[1:]
    filled, starts = np.unique(codes, return_index=True)
    stops = np.append(starts[1:], len(values))
    sums = np.bincount(codes, weight / totals[codes] * values, minlength=len(means))
    if len(filled):
        means[filled] = np.clip(sums[filled], values[starts], values[stops - 1])
    return means


def categories_of(table: Table, j: int, kept: np.ndarray | None) -> tuple[tuple, bool]:
    """The categories among the rows of positive weight, in order, and whether any of these rows has none."""
    levels, codes = table.levels(j)
    codes = codes if kept is None else codes[kept]
    missing = bool((codes < 0).any())
    present = np.bincount(codes[codes >= 0], minlength=len(levels)) > 0
    categories = tuple(level for level, is_present in zip(levels, present, strict=True) if is_present)
    if len(categories) + missing > MAX_BINS:
        raise ValueError(
            f"{table.label(j)} has {len(categories)} categories; a feature must have at most {MAX_BINS - missing}"
        )
    return categories, missing
