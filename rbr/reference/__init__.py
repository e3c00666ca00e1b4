"""The definition of rbr, in NumPy: every kernel and Algorithm 1, written to be read beside the paper.

Nothing here is fast, and nothing here may be changed to make it fast. The compiled twins in `rbr._fast`
have the same names and signatures, and the tests prove the two equal.  Looks at: numpy, scipy.

The symbols, and their one name in the code
-------------------------------------------
=============  =====================  ==========================================================
paper          code                   meaning
=============  =====================  ==========================================================
n, p           n_rows, n_features     rows and columns of the table
b_j            n_bins                 bins of feature j
p_bin          n_coef                 sum of the b_j: entries of the stacked tables
X_bin          BinnedMatrix           the one-hot matrix; the paper scales its entries by sqrt(b_j / n)
beta^j         table * sqrt(n / b_j)  the paper's scaling of a table under uniform weights
f_j            table                  value of each bin of feature j; stacked they are `f`
w_j            weights                geometry of a table: w >= 0, sum 1, <u, v>_w = sum_k w_k u_k v_k
s_G            max_features           number of non-zero tables
s_L            max_segments, limit    number of pieces of a table (the paper's norm counts jumps: pieces - 1)
P_zm           project_zero_mean      removes the w-mean
P_L            prox_table, price 0    nearest table of at most s_L pieces
P_G            keep_largest           keeps the s_G tables of the largest w-norm
P_C            project                P_G o P_L o P_zm
mu             step                   step size
kappa          jump_cost              price of complexity; 0 is the paper
lambda         scale                  dispersion / n, the unit of the jump cost
=============  =====================  ==========================================================
"""

from rbr.reference import kernels

__all__ = ["kernels", "solve"]


def __getattr__(name: str):
    # The oracle needs scipy.sparse and scipy.optimize; `import rbr` does not.
    if name == "solve":
        from rbr.reference.algorithm1 import solve

        return solve
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
