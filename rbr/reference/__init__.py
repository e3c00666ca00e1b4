"""The definition of rbr, in NumPy: every kernel and Algorithm 1, written to be read beside the paper.

Nothing here is fast, and nothing here may be changed to make it fast. The compiled twins in `rbr._fast`
have the same names and signatures, and the tests check that the two agree.
"""

from rbr.reference import kernels

__all__ = ["kernels", "solve"]


def __getattr__(name: str):
    # `solve` needs scipy.sparse and scipy.optimize; `import rbr` does not.
    if name == "solve":
        from rbr.reference.algorithm1 import solve

        return solve
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
