"""The kernels' reference: same names and arguments as in `rbr._fast`, one call into the definitions each.

A kernel computes one range first <= … < last of what it is asked for, and writes only what that range owns.
"""

from rbr.reference.projections import SHAPES, project_zero_mean, prox_table

__all__ = ["center_tables", "prox_tables"]


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
    price,  # IN  mu * lambda * kappa
    level_codes,  # IN  flat, of the `levels` tables: log S(b, k) + k - 1 for k = 1..min(limit, b)
    level_code_offsets,  # IN  (n_features + 1,) int64
    greedy,  # IN  bottom-up merging instead of the exact search
    out,  # OUT (n_coef,) the slices of the given tables
    labels,  # OUT (n_coef,) int32, likewise: 2 * piece + has_slope, see `prox_table`
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
        )
