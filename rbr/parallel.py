"""A small pool of Python threads that deals ranges to kernels which release the GIL.

A kernel takes (…, first, last) and writes only what its range owns, so the answer has the same bits for
any number of threads. No OpenMP: nothing spins on a busy machine, a forked child works (the pool is
remade there), and wheels need no runtime of their own.  Looks at: nothing.  Seen by: the gates.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_pool: ThreadPoolExecutor | None = None
_pool_size = 0


def _forget_pool() -> None:
    global _pool, _pool_size
    _pool, _pool_size = None, 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


def _pool_of(n_threads: int) -> ThreadPoolExecutor:
    """The shared pool, grown to at least n_threads workers."""
    global _pool, _pool_size
    if _pool is None or _pool_size < n_threads:
        _pool, _pool_size = ThreadPoolExecutor(n_threads, thread_name_prefix="rbr"), n_threads
    return _pool


def over_ranges(
    kernel: Callable[..., None], n_items: int, n_threads: int, *args: Any, per_call: int | None = None
) -> None:
    """Call kernel(*args, first, last) on ranges that together cover range(n_items), n_threads of them at a time.

    The caller's thread takes the first range itself, so one thread means one plain call. With `per_call` no range is
    longer than that, so that a long computation comes up for air and Ctrl-C is heard.
    """
    at_once = max(n_items, 1) if per_call is None else per_call * n_threads
    for first in range(0, max(n_items, 1), at_once):
        _deal(kernel, first, min(first + at_once, n_items), n_threads, args)


def _deal(kernel: Callable[..., None], start: int, stop: int, n_threads: int, args: tuple) -> None:
    n_ranges = max(1, min(n_threads, stop - start))
    cuts = [start + (stop - start) * i // n_ranges for i in range(n_ranges + 1)]
    if n_ranges == 1:
        kernel(*args, cuts[0], cuts[1])
        return
    pool = _pool_of(n_ranges - 1)
    others = [pool.submit(kernel, *args, cuts[i], cuts[i + 1]) for i in range(1, n_ranges)]
    try:
        kernel(*args, cuts[0], cuts[1])
    finally:
        for other in others:
            other.result()


def resolve_n_jobs(n_jobs: int | None) -> int:
    """The number of threads that n_jobs stands for: None is 1 unless a joblib context says more, -1 all cores."""
    if n_jobs is not None and (not isinstance(n_jobs, int) or isinstance(n_jobs, bool) or n_jobs == 0):
        raise ValueError(f"n_jobs is {n_jobs!r}; it must be None, a positive int, or negative (-1 = all cores)")
    if "joblib" in sys.modules:
        # Inside a joblib context None means the context's choice, and a nested worker gets one thread.
        return sys.modules["joblib"].effective_n_jobs(n_jobs)
    if n_jobs is None:
        return 1
    if n_jobs > 0:
        return n_jobs
    return max(1, (os.cpu_count() or 1) + 1 + n_jobs)
