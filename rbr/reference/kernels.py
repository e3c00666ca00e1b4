"""The reference kernels: the names and arguments of `rbr._fast`, each a call to its definition.

A kernel computes the range first <= … < last of its results, and writes only what belongs to that range.
"""

import numpy as np

from rbr.reference import csv_text, losses
from rbr.reference.binning import binomial_bins, codes_of, describe_bins, distinct_values, regular_bins
from rbr.reference.design import cross_tabulate, look_up, sum_by_bin
from rbr.reference.grids import average_grids
from rbr.reference.projections import SHAPES, project_zero_mean, prox_table
from rbr.reference.rectangles import cut_grids
from rbr.reference.surfaces import smooth_grids
from rbr.reference.visits import visit_rows, visit_tables

__all__ = [
    "add_field_sizes",
    "average_grids",
    "bin_counts",
    "bin_moments",
    "center_tables",
    "count_line_ends",
    "cross_counts",
    "cut_binomial",
    "cut_grids",
    "cut_regular",
    "encode",
    "expit",
    "gram",
    "last_row_end",
    "levels_at",
    "log_loss_sums",
    "loss_of_rows",
    "matvec",
    "matvec_outputs",
    "numbers_at",
    "place_fields",
    "prox_tables",
    "put_fields",
    "rmatvec",
    "rmatvec_outputs",
    "score",
    "smooth_grids",
    "softmax_hessian_times",
    "softmax_of_rows",
    "softmax_sums",
    "sort_rows",
    "squared_distances",
    "sum_by_code",
    "transpose",
    "visit_rows",
    "visit_tables",
    "write_numbers",
]


def matvec(
    codes,  # IN  (n_features, n_rows) uint8 or uint16; n_bins of the feature means no bin
    offsets,  # IN  (n_features + 1,) int64
    f,  # IN  (n_coef,)
    features,  # IN  (n,) int64: the features to sum over
    out,  # OUT (n_rows,), the rows first <= i < last
    first,
    last,
):
    """out[i] = sum over the listed features j of f[offsets[j] + codes[j, i]], in the order of the list."""
    out[first:last] = 0.0
    for j in features:
        out[first:last] += look_up(f[offsets[j] : offsets[j + 1]], codes[j, first:last])


def rmatvec(
    codes,  # IN  (n_features, n_rows) uint8 or uint16
    offsets,  # IN  (n_features + 1,) int64
    features,  # IN  (n,) int64: the features to compute, none twice; first and last count in this list
    values,  # IN  (n_rows,)
    row_start,  # IN  the rows row_start <= i < row_stop are summed
    row_stop,
    out,  # IN/OUT (n_coef,), the slices of the features at first <= t < last of the list
    first,
    last,
):
    """out[offsets[j] + k] += sum of values[i] over the rows with codes[j, i] == k."""
    rows = slice(row_start, row_stop)
    for j in features[first:last]:
        n_bins = offsets[j + 1] - offsets[j]
        out[offsets[j] : offsets[j + 1]] += sum_by_bin(codes[j, rows], values[rows], n_bins)


def matvec_outputs(codes, offsets, f, features, out, first, last):
    """`matvec` of each output: f has the shape (n_outputs, n_coef), out (n_outputs, n_rows)."""
    for own, row_sums in zip(f, out, strict=True):
        matvec(codes, offsets, own, features, row_sums, first, last)


def rmatvec_outputs(codes, offsets, features, values, row_start, row_stop, out, first, last):
    """`rmatvec` of each output: values has the shape (n_outputs, n_rows), out (n_outputs, n_coef)."""
    for own, bin_sums in zip(values, out, strict=True):
        rmatvec(codes, offsets, features, own, row_start, row_stop, bin_sums, first, last)


def gram(
    codes,  # IN  (n_features, n_rows) uint8 or uint16
    offsets,  # IN  (n_features + 1,) int64
    features,  # IN  (n,) int64: the chosen features
    row_weights,  # IN  (n_rows,)
    out_offsets,  # IN  (n + 1,) int64: where the block of the t-th chosen feature starts in out
    out,  # OUT (out_offsets[-1], out_offsets[-1]), both blocks of the pairs first <= pair < last
    first,
    last,
):
    """X_S.T @ diag(row_weights) @ X_S, by pairs t <= u of the list: (0, 0), (0, 1), …, (1, 1), …"""
    left, right = np.triu_indices(len(features))
    for t, u in zip(left[first:last], right[first:last], strict=True):
        block = cross_tabulate(
            codes[features[t]],
            codes[features[u]],
            row_weights,
            out_offsets[t + 1] - out_offsets[t],
            out_offsets[u + 1] - out_offsets[u],
        )
        t_bins, u_bins = slice(out_offsets[t], out_offsets[t + 1]), slice(out_offsets[u], out_offsets[u + 1])
        out[t_bins, u_bins] = block
        out[u_bins, t_bins] = block.T


def bin_counts(codes, offsets, out, first, last):
    """out[offsets[j] + k] = number of rows with codes[j, i] == k, for the features first <= j < last."""
    for j in range(first, last):
        n_bins = offsets[j + 1] - offsets[j]
        out[offsets[j] : offsets[j + 1]] = np.bincount(codes[j], minlength=n_bins)[:n_bins]


def bin_moments(
    codes,  # IN  (n_features, n_rows) uint8 or uint16; n_bins of the feature means no bin
    features,  # IN  (n,) int64: the features to compute, none twice; first and last count in this list
    out_offsets,  # IN  (n + 1,) int64 where the bins of each begin in `near` and `sums`
    values,  # IN  (n_rows, n_columns) float32 or float64, any strides
    columns,  # IN  (n,) int64: the column of `values` with the x of each listed feature
    v,  # IN  (n_rows,) the weights of the rows
    near,  # IN  (m,) a number near the values of each bin
    per_unit,  # IN  (n,)
    sums,  # IN/OUT (m, 3)
    bounds,  # IN/OUT (n, 2)
    first,
    last,
):
    """Add to `sums` v, v d and v d^2 by bin, d = (x - near) * per_unit, and widen `bounds`; over rows with finite x."""
    for t in range(first, last):
        start, stop = out_offsets[t : t + 2]
        x = values[:, columns[t]].astype(np.float64)
        is_finite = np.isfinite(x)
        x, own, weights = x[is_finite], codes[features[t]][is_finite], v[is_finite]
        bounds[t] = x.min(initial=bounds[t, 0]), x.max(initial=bounds[t, 1])
        has_bin = own < stop - start
        x, own, weights = x[has_bin], own[has_bin], weights[has_bin]
        d = (x - near[start:stop][own]) * per_unit[t]
        for power in range(3):
            sums[start:stop, power] += np.bincount(own, weights * d**power, minlength=stop - start)


def cross_counts(codes, offsets, features, out_offsets, out, first, last):
    """`gram` with all row weights 1."""
    gram(codes, offsets, features, np.ones(codes.shape[1]), out_offsets, out, first, last)


def sum_by_code(
    codes,  # IN  (n_rows,) uint8 or uint16, below n_codes
    values,  # IN  (n, n_rows)
    out,  # OUT (n, n_codes), the rows first <= t < last
    first,
    last,
):
    """out[t, k] = sum of values[t, i] over the rows with codes[i] == k."""
    for t in range(first, last):
        out[t] = sum_by_bin(codes, values[t], out.shape[1])


def loss_of_rows(
    loss,  # IN  its number in losses.LOSSES
    order,  # IN  0: the loss; 1: the residual, -dloss/dz; 2: the curvature, d2loss/dz2
    a,  # IN  its parameters: power (tweedie), delta (huber), level (quantile),
    b,  #     half-width (quantile); unused ones are ignored
    y,  # IN  (n_rows,)
    z,  # IN  (n_rows,): raw scores
    v,  # IN  (n_rows,): weights, or (0,) for none
    out,  # OUT (n_rows,), the rows first <= i < last
    first,
    last,
):
    """out[i] = v[i] times the loss of row i, or a derivative of it."""
    out[first:last] = losses.DERIVATIVES[losses.LOSSES[loss]][order](y[first:last], z[first:last], a, b)
    out[first:last] *= v[first:last] if len(v) else 1.0


def log_loss_sums(
    y,  # IN  (n_rows,), 0 or 1
    z,  # IN  (n_rows,): raw scores
    v,  # IN  (n_rows,): weights
    c,  # IN  added to every score
    out,  # OUT (n_blocks, 6), the blocks first <= b < last
    first,
    last,
):
    """Weighted sums over blocks of ROWS_PER_SUM rows, at the scores z + c.

    The six sums are of |residual| where y = 1, and where y = 0; of the curvature where y = 1, and where y = 0; of the
    loss; and of its third derivative.
    """
    for b in range(first, last):
        rows = slice(b * losses.ROWS_PER_SUM, (b + 1) * losses.ROWS_PER_SUM)
        ones, scores = y[rows], z[rows] + c
        pull = v[rows] * np.abs(losses.log_loss_residual(ones, scores))
        curvature = v[rows] * losses.log_loss_curvature(ones, scores)
        loss = v[rows] * losses.log_loss_value(ones, scores)
        third = v[rows] * losses.log_loss_third(scores)
        terms = ones * pull, (1.0 - ones) * pull, ones * curvature, (1.0 - ones) * curvature, loss, third
        out[b] = [term.sum() for term in terms]


def softmax_of_rows(
    order,  # IN  0: the loss; 1: the residuals, -dloss/dz; 2: the curvatures, d2loss/dz_k^2
    y,  # IN  (n_rows,) int64: classes
    z,  # IN  (n_classes, n_rows): raw scores
    v,  # IN  (n_rows,): weights, or (0,) for none
    out,  # OUT (n_classes, n_rows), for the loss (1, n_rows); the rows first <= i < last
    first,
    last,
):
    """out[k, i] = v[i] times a derivative of row i's loss in the score of class k; out[0, i] the loss itself."""
    of_rows = (losses.softmax_value, losses.softmax_residual, losses.softmax_curvature)[order]
    out[:, first:last] = of_rows(y[first:last], z[:, first:last])
    out[:, first:last] *= v[first:last] if len(v) else 1.0


def softmax_sums(
    y,  # IN  (n_rows,) int64: classes
    z,  # IN  (n_classes, n_rows): raw scores
    v,  # IN  (n_rows,): weights
    c,  # IN  (n_classes,): added to the scores of each class
    out,  # OUT (n_blocks, 1 + K + K (K + 1) / 2), K = n_classes; the blocks first <= b < last
    first,
    last,
):
    """Weighted sums over blocks of ROWS_PER_SUM rows, at the scores z + c.

    Of the loss; of the probability of each class; of the products of two of them, classes k >= l: (0, 0), (1, 0), …
    """
    for b in range(first, last):
        rows = slice(b * losses.ROWS_PER_SUM, (b + 1) * losses.ROWS_PER_SUM)
        scores = z[:, rows] + c[:, None]
        p, below = losses.softmax(scores), np.tril_indices(len(c))
        value = v[rows] @ losses.softmax_value(y[rows], scores)
        out[b] = np.concatenate([[value], p @ v[rows], ((v[rows] * p) @ p.T)[below]])


def softmax_hessian_times(
    probabilities,  # IN  (n_classes, n_rows)
    direction,  # IN  (n_classes, n_rows)
    v,  # IN  (n_rows,): weights
    out,  # OUT (n_classes, n_rows), the rows first <= i < last
    first,
    last,
):
    """out[:, i] = v[i] (diag(p) - p p') d, where p and d are the columns i of `probabilities` and `direction`."""
    rows = slice(first, last)
    p, d = probabilities[:, rows], direction[:, rows]
    out[:, rows] = v[rows] * (p * (d - (p * d).sum(axis=0)))


def squared_distances(
    a,  # IN  (n_rows,)
    b,  # IN  (n_rows,)
    v,  # IN  (n_rows,): weights, above zero
    out,  # OUT (n_blocks, 2), the blocks first <= b < last
    first,
    last,
):
    """Sums of (a - b)^2 / v and of a^2 / v over blocks of ROWS_PER_SUM rows.

    For weighted residuals a = v r and b = v r' they are sums of v (r - r')^2 and of v r^2.
    """
    for block in range(first, last):
        rows = slice(block * losses.ROWS_PER_SUM, (block + 1) * losses.ROWS_PER_SUM)
        inverse = 1.0 / v[rows]
        out[block] = ((a[rows] - b[rows]) ** 2 * inverse).sum(), (a[rows] ** 2 * inverse).sum()


def center_tables(f, offsets, weights, out, squared_norms, first, last):
    """P_zm of the tables first <= j < last, and their squared w-norms after it."""
    for j in range(first, last):
        table = slice(offsets[j], offsets[j + 1])
        out[table] = project_zero_mean(f[table], weights[table])
        squared_norms[j] = weights[table] @ out[table] ** 2


def prox_tables(
    tables,  # IN  (n,) int64: the tables to compute; first and last count in this list
    centred,  # IN  (n_coef,) tables of mean zero
    offsets,  # IN  (n_features + 1,) int64
    weights,  # IN  (n_coef,)
    positions,  # IN  (n_coef,) not decreasing within the ordered bins of a table
    missing,  # IN  (n_features,) uint8: 1 if the last bin is the missing one
    shapes,  # IN  (n_features,) int8: index into SHAPES
    limits,  # IN  (n_features,) int64: s_L,j
    rows,  # IN  (n_coef,) the share of the rows in each bin
    least_rows,  # IN  (n_features,) the least share of the rows in a piece that is not the only one; 0: no minimum
    price,  # IN  mu * lambda * kappa
    level_codes,  # IN  flat, of the `levels` tables: the code of k = 1..min(limit, b) levels, increasing in k
    level_code_offsets,  # IN  (n_features + 1,) int64
    greedy,  # IN  bottom-up merging instead of the exact search
    out,  # OUT (n_coef,) the slices of the given tables
    labels,  # OUT (n_coef,) int32, likewise: 2 * piece + is_line, see `prox_table`
    nets,  # OUT (n_features,) likewise: gain / 2 - price * code
    codes,  # OUT (n_features,) likewise: code lengths
    first,
    last,
):
    """P_L, or its priced form, of the listed tables."""
    for j in tables[first:last]:
        table = slice(offsets[j], offsets[j + 1])
        out[table], labels[table], nets[j], codes[j] = prox_table(
            centred[table],
            weights[table],
            positions[table],
            missing[j],
            SHAPES[shapes[j]],
            limits[j],
            price,
            greedy,
            rows[table],
            least_rows[j],
        )


def cut_regular(
    values,  # IN  (n_features, n_values), each row ascending, NaN last
    weights,  # IN  (n_features, n_values) above 0, or (n_features, 0): every weight is 1
    max_bins,  # IN  (n_features,) int64
    edges,  # OUT (n_features, >= n_bins - 1), the rows first <= j < last
    positions,  # OUT (n_features, >= n_bins), likewise: mean of the values in each bin
    n_bins,  # OUT (n_features,) int64, likewise
    first,
    last,
):
    """Bins of equal weight, with heavy values in bins of their own."""
    for j in range(first, last):
        distinct, weight = distinct_values(values[j], _weights_of(values, weights, j))
        _write_bins(distinct, weight, regular_bins(weight, max_bins[j]), edges[j], positions[j], n_bins, j)


def cut_binomial(
    values,  # IN  (n_features, n_values), each row ascending, NaN last
    weights,  # IN  (n_features, n_values) above 0, or (n_features, 0): every weight is 1
    cuts,  # IN  (n_features, max_bins - 1), each row ascending: cumulated weights to cut at
    edges,  # OUT (n_features, >= n_bins - 1), the rows first <= j < last
    positions,  # OUT (n_features, >= n_bins), likewise: mean of the values in each bin
    n_bins,  # OUT (n_features,) int64, likewise
    first,
    last,
):
    """Bins that end at the given cumulated weights."""
    for j in range(first, last):
        distinct, weight = distinct_values(values[j], _weights_of(values, weights, j))
        _write_bins(distinct, weight, binomial_bins(weight, cuts[j]), edges[j], positions[j], n_bins, j)


def _weights_of(values, weights, j):
    return weights[j] if weights.shape[1] else np.ones(values.shape[1])


def _write_bins(distinct, weight, bins, edges, positions, n_bins, j):
    edges_found, means = describe_bins(distinct, weight, bins)
    n_bins[j] = len(means)
    edges[: len(edges_found)] = edges_found
    positions[: len(means)] = means


def encode(
    values,  # IN  (n_rows, n_features), any strides
    edges,  # IN  the edges of all features, ascending within each
    edge_offsets,  # IN  (n_features + 1,) int64, where each feature's edges lie in `edges`
    codes,  # OUT (n_features, n_rows) uint8 or uint16, the columns first <= i < last
    first,
    last,
):
    """codes[j, i] = number of edges of feature j below values[i, j]; for NaN one more than it has edges."""
    for j in range(values.shape[1]):
        codes[j, first:last] = codes_of(values[first:last, j], edges[edge_offsets[j] : edge_offsets[j + 1]])


def transpose(
    values,  # IN  (n_rows, n_features), any strides
    rows,  # IN  (n,) int64: the rows that are wanted, or (0,) for all
    out,  # OUT (n_features, n) of the same dtype, the rows first <= j < last
    first,
    last,
):
    """out[j, i] = values[rows[i], j]."""
    out[first:last] = (values[rows] if len(rows) else values)[:, first:last].T


def sort_rows(
    values,  # IN/OUT (n_features, n_values), the rows first <= j < last
    first,
    last,
):
    """Sort each row: -0 counts as 0, and NaNs come last."""
    values[first:last] = np.sort(values[first:last] + values.dtype.type(0), axis=1)


def score(
    values,  # IN  (n_rows, n_features) float32 or float64
    columns,  # IN  (n_terms,) int64: the feature of each term
    edges,  # IN  the edges of all terms, ascending within each; 2 ** m - 1 per term, padded with +inf
    edge_offsets,  # IN  (n_terms + 1,) int64: where each term's edges lie in `edges`
    tables,  # IN  (all pieces, n_outputs): per term one row more than it has edges, then one for NaN
    slopes,  # IN  (all pieces, n_outputs), likewise: 0 in constant pieces
    anchors,  # IN  (all pieces,), likewise: where a line has its value in `tables`
    has_lines,  # IN  (n_terms,) uint8: whether any slope of the term is not 0
    out,  # IN/OUT (n_rows, n_outputs), the rows first <= i < last
    first,
    last,
):
    """out[i] += the sum, in the order of the terms, of value + slope * (x - anchor) in the piece of x = values[i, j].

    A constant piece, and the entry for NaN, adds its value whatever x is, also where it is infinite.
    """
    for t, j in enumerate(columns):
        own_edges = edges[edge_offsets[t] : edge_offsets[t + 1]]
        start = edge_offsets[t] + 2 * t
        # codes_of gives NaN the code one past the pieces, where the entry for NaN is.
        x = values[first:last, j].astype(np.float64)
        piece = start + codes_of(x, own_edges)
        rise = np.where(slopes[piece] != 0, slopes[piece] * (x - anchors[piece])[:, None], 0.0)
        out[first:last] += tables[piece] + rise


def expit(
    scores,  # IN  (n_rows,)
    out,  # OUT (n_rows,)
    first,
    last,
):
    """out[i] = 1 / (1 + exp(-scores[i])): the probability of the second of two classes."""
    out[first:last] = 1.0 / (1.0 + np.exp(-scores[first:last]))


# Text tables ----------------------------------------------------------------------------------------------


def last_row_end(
    data,  # IN  CSV, uint8
    separator,  # IN  the byte between two fields
    out,  # OUT (1,) int64
    first,
    last,
):
    """out[0] = where the last row ends that has an end of line; an end of line within quotes is none."""
    for k in range(first, last):
        ends = [end for _, end in csv_text.rows_of(data.tobytes(), separator) if end is not None]
        out[k] = max(ends, default=0)


def count_line_ends(
    data,  # IN  CSV, uint8
    out,  # OUT (1,) int64
    first,
    last,
):
    """out[0] = how many bytes end a line, also within quotes: the rows are one more at most."""
    out[first:last] = np.isin(data, list(b"\r\n")).sum()


def place_fields(
    data,  # IN  rows of CSV, uint8
    separator,  # IN  the byte between two fields
    slots,  # IN  (n_columns,) int32: the place of each column in `starts`, -1 if it is not needed
    starts,  # OUT (n_needed, n_rows) int32: where fields start; 0 where a row is too short
    ends,  # OUT (n_needed, n_rows) int32: where they end
    n_fields,  # OUT (n_rows,) int32: the fields of each row; 0 after the last row
    first,
    last,
):
    """Where the fields of the rows first <= i < last lie, without the quotes around them.

    Where that does not give the text, because it holds quotes or goes on after them, the field starts with its quote.
    """
    n_fields[first:last] = 0
    for i, (fields, _) in enumerate(csv_text.rows_of(data.tobytes(), separator)):
        if first <= i < last:
            n_fields[i] = len(fields)
            for j, slot in enumerate(slots):
                if slot >= 0:
                    starts[slot, i], ends[slot, i] = fields[j] if j < len(fields) else (0, 0)


def numbers_at(
    data,  # IN  text, uint8
    starts,  # IN  (n_columns, n_rows) int32
    ends,  # IN  (n_columns, n_rows) int32
    point,  # IN  the decimal sign
    out,  # OUT (n_columns, n_rows), the rows first <= i < last; NaN for no text
    is_odd,  # OUT (n_columns, n_rows) uint8: whether the text is no plain number; out is NaN then
    first,
    last,
):
    """out[j, i] = float(the text there): digits with perhaps a sign, a decimal sign and an exponent, in blanks."""
    for j in range(len(starts)):
        for i in range(first, last):
            number = csv_text.number_of(data[starts[j, i] : ends[j, i]].tobytes(), point)
            out[j, i], is_odd[j, i] = (np.nan, True) if number is None else (number, False)


def levels_at(
    data,  # IN  text, uint8
    starts,  # IN  (n_columns, n_rows) int32
    ends,  # IN  (n_columns, n_rows) int32
    codes,  # OUT (n_columns, n_rows) int64
    first_rows,  # OUT (n_columns, n_rows) int64: for each distinct text the first row that has it
    n_levels,  # OUT (n_columns,) int64
    first,
    last,
):
    """The distinct texts of the columns first <= j < last in the order of their first rows, and which one a row has."""
    for j in range(first, last):
        known = {}
        for i, (start, end) in enumerate(zip(starts[j], ends[j], strict=True)):
            text = data[start:end].tobytes()
            if text not in known:
                first_rows[j, len(known)] = i
                known[text] = len(known)
            codes[j, i] = known[text]
        n_levels[j] = len(known)


def write_numbers(
    values,  # IN  (n_rows,)
    out,  # OUT (n_rows, NUMBER_WIDTH) uint8
    n_bytes,  # OUT (n_rows,) int32
    first,
    last,
):
    """out[i, :n_bytes[i]] = repr(values[i])."""
    for i in range(first, last):
        text = repr(float(values[i])).encode()
        n_bytes[i] = len(text)
        out[i, : len(text)] = np.frombuffer(text, np.uint8)


def add_field_sizes(
    data,  # IN  text, uint8
    starts,  # IN  (n_rows,) int32
    ends,  # IN  (n_rows,) int32
    is_plain,  # IN  whether no text needs quotes
    out,  # IN/OUT (n_rows,) int64
    first,
    last,
):
    """out[i] += the bytes that the text of row i takes in CSV, with what follows it."""
    for i in range(first, last):
        text = data[starts[i] : ends[i]].tobytes()
        out[i] += len(text if is_plain else csv_text.in_csv(text)) + 1


def put_fields(
    data,  # IN  text, uint8
    starts,  # IN  (n_rows,) int32
    ends,  # IN  (n_rows,) int32
    is_plain,  # IN  whether no text needs quotes
    follower,  # IN  the byte that follows: a comma, or the end of the line
    places,  # IN/OUT (n_rows,) int64: where the field of each row goes, and then where the next does
    out,  # OUT the bytes of the rows, uint8
    first,
    last,
):
    """Writes the text of each row as CSV, in quotes if it needs them."""
    for i in range(first, last):
        text = data[starts[i] : ends[i]].tobytes()
        text = (text if is_plain else csv_text.in_csv(text)) + bytes([follower])
        out[places[i] : places[i] + len(text)] = np.frombuffer(text, np.uint8)
        places[i] += len(text)
