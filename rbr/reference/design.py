"""The binned design X, a one-hot matrix that is never built: the paper's X_bin without its sqrt(b_j / n).

Row i of X holds a single 1 per feature j, in column offsets[j] + codes[j, i]. A code one past a table's last
bin means that the row has no bin there: its row of the block is all zero.
"""

from __future__ import annotations

import numpy as np


def look_up(table, codes):
    """X_j @ table: the entry of each row's bin; 0 where the row has none."""
    return np.append(table, 0.0)[codes]


def sum_by_bin(codes, values, n_bins):
    """X_j.T @ values: for each bin the sum of values over its rows."""
    return np.bincount(codes, weights=values, minlength=n_bins + 1)[:n_bins]


def cross_tabulate(row_codes, column_codes, row_weights, n_row_bins, n_column_bins):
    """X_j.T @ diag(row_weights) @ X_l: for each pair of bins the sum of the weights of the rows in both."""
    joint_codes = row_codes.astype(np.int64) * (n_column_bins + 1) + column_codes
    n_joint = (n_row_bins + 1) * (n_column_bins + 1)
    joint = np.bincount(joint_codes, weights=row_weights, minlength=n_joint)
    return joint.reshape(n_row_bins + 1, n_column_bins + 1)[:n_row_bins, :n_column_bins]
