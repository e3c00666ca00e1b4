"""A small pool of Python threads that deals ranges to kernels which release the GIL.

A kernel takes (…, first, last) and writes only what its range owns, so the answer has the same bits for
any number of threads and any ranges. Work is dealt out in small ranges, each to the next free thread, and the
caller's thread works too: on a busy machine a thread that is not scheduled delays one small range, and one that has
not started delays nothing. OpenMP is not used: no thread spins, a forked child works (the pool is recreated there), and
wheels need no extra runtime.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache
from itertools import count
from typing import Any

# Ranges per thread: enough that the last thread to finish is late by a small part of its share. More would cost more
# in calls.
RANGES_PER_THREAD = 8

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
    """Call kernel(*args, first, last) on ranges that together cover range(n_items), on up to n_threads threads.

    With one thread the kernel is called directly in the caller's thread. `per_call` limits the length of a range, so
    that a long computation returns to Python often enough to notice Ctrl-C.
    """
    n_threads = max(1, min(n_threads, n_items))
    length = max(n_items, 1) if n_threads == 1 else -(-n_items // (RANGES_PER_THREAD * n_threads))
    length = length if per_call is None else min(length, per_call)
    if n_threads == 1:
        for first in range(0, max(n_items, 1), length):
            kernel(*args, first, min(first + length, n_items))
        return
    _deal(kernel, n_items, length, n_threads, args)


def _deal(kernel: Callable[..., None], n_items: int, length: int, n_threads: int, args: tuple) -> None:
    """Deal ranges of the given length, each to the next free thread."""
    numbers = count()  # next() is one C call under the GIL, so no two threads get the same number
    is_over: list[bool] = []

    def work() -> None:
        while not is_over and (first := next(numbers) * length) < n_items:
            kernel(*args, first, min(first + length, n_items))

    pool = _pool_of(n_threads - 1)
    # A thread does not inherit context variables, such as the backend in use, and each needs its own copy of them.
    others = [pool.submit(copy_context().run, work) for _ in range(n_threads - 1)]
    try:
        work()
    finally:
        is_over.append(True)
        for other in others:
            if not other.cancel():
                other.result()


@cache
def _thread_pools():
    """The thread pools of the loaded libraries, cached because finding them takes some milliseconds."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


_blas_lock = threading.Lock()
_n_in_blas = 0
_blas_limit: Any = None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to the calling thread; such blocks may be nested, and open in several threads at once.

    Our products are small: BLAS's own threads gain nothing there, and spin beside ours while they wait for work.
    """
    global _n_in_blas, _blas_limit
    with _blas_lock:
        if _n_in_blas == 0:
            _blas_limit = _thread_pools().limit(limits=1, user_api="blas")
        _n_in_blas += 1
    try:
        yield
    finally:
        with _blas_lock:
            _n_in_blas -= 1
            if _n_in_blas == 0:
                _blas_limit.restore_original_limits()
                _blas_limit = None


def resolve_n_jobs(n_jobs: int | None) -> int:
    """The number of threads for n_jobs: None means 1 unless a joblib context says otherwise, -1 all cores."""
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
