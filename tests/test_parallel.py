"""The pool: ranges cover the work once, a late thread delays no one, errors are raised, and forked children work."""

import multiprocessing
import os
import threading
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import pytest
from helpers import assert_same_bits

import rbr
from rbr import RBRClassifier, _fast, _parallel
from rbr._backend import kernels
from rbr._parallel import over_ranges
from rbr.data import cutting, design
from rbr.model import scoring
from rbr.reference import kernels as reference


@pytest.mark.parametrize("n_threads", [1, 2, 7])
@pytest.mark.parametrize("per_call", [None, 1, 13, 1000])
@pytest.mark.parametrize("n_items", [0, 1, 5, 100, 1003])
def test_ranges_cover_the_items_once(n_items, per_call, n_threads):
    times, lengths = np.zeros(n_items, dtype=int), []

    def kernel(first, last):
        lengths.append(last - first)
        times[first:last] += 1

    over_ranges(kernel, n_items, n_threads, per_call=per_call)
    assert (times == 1).all()
    assert max(lengths) <= (per_call or max(n_items, 1))


def test_one_thread_is_one_plain_call():
    calls = []
    over_ranges(lambda *args: calls.append((*args, threading.get_ident())), 100, 1, "a")
    assert calls == [("a", 0, 100, threading.get_ident())]


def test_a_thread_that_does_not_come_holds_up_nobody():
    """With all workers of the pool busy elsewhere, the caller does the work alone and returns."""
    over_ranges(lambda first, last: None, 10, 3)  # the pool has workers now
    release, workers = threading.Event(), _parallel._pool_size
    busy = [_parallel._pool_of(1).submit(release.wait) for _ in range(workers)]
    done = np.zeros(50, dtype=int)

    def kernel(first, last):
        done[first:last] += 1

    caller = threading.Thread(target=over_ranges, args=(kernel, 50, 3))
    caller.start()
    caller.join(60)
    came_back = not caller.is_alive()
    release.set()
    for one in busy:
        one.result()
    caller.join()
    assert came_back
    assert (done == 1).all()


def test_work_is_dealt_to_the_thread_that_asks_next():
    """One thread is stuck in its first range until the other has done all the rest."""
    n_items, done, all_others_done = 64, [], threading.Event()
    lock = threading.Lock()

    def kernel(first, last):
        with lock:
            is_first = not done
            done.append((first, last))
            if sum(b - a for a, b in done) == n_items:
                all_others_done.set()
        if is_first:
            assert all_others_done.wait(60)

    over_ranges(kernel, n_items, 2)
    assert sum(b - a for a, b in done) == n_items


@pytest.mark.parametrize("failing", [0, 63])
def test_errors_of_any_thread_arrive(failing):
    def kernel(first, last):
        if first <= failing < last:
            raise ArithmeticError(f"item {failing}")

    for n_threads in (1, 2, 5):
        with pytest.raises(ArithmeticError, match=f"item {failing}"):
            over_ranges(kernel, 64, n_threads)


def test_every_thread_runs_the_backend_of_its_caller():
    """Three ranges and a barrier of three, so that no thread can take two."""
    barrier, seen = threading.Barrier(3, timeout=60), []

    def kernel(first, last):
        seen.append((kernels(), threading.get_ident()))
        barrier.wait()

    for name, backend in (("reference", reference), ("fast", _fast)):
        with rbr.use_backend(name):
            over_ranges(kernel, 3, 3)
        assert [module for module, _ in seen] == [backend] * 3
        assert len({thread for _, thread in seen}) == 3
        seen.clear()


class _EagerPool(ThreadPoolExecutor):
    """A pool whose first worker finishes before the caller begins, so that no range runs in the caller's thread."""

    n_submitted = 0

    def submit(self, *args):
        future = super().submit(*args)
        wait([future])
        self.n_submitted += 1
        return future


@pytest.mark.parametrize("loss", ["squared_error", "log_loss"])
def test_the_reference_calls_no_compiled_kernel_on_any_thread(monkeypatch, loss):
    def compiled(*args):
        raise AssertionError("a compiled kernel was called")

    for name in _fast.__all__:
        monkeypatch.setattr(_fast, name, compiled)
    for room in (cutting, design, scoring):  # even the smallest work gets a thread
        monkeypatch.setattr(room, "MIN_ENTRIES_PER_THREAD", 1)
    monkeypatch.setattr("rbr.losses.sums.THREADED_ROWS", 1)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 20))
    y = (X[:, 0] > 0).astype(float)
    constraints = rbr.Constraints(max_segments=3, jump_cost=0.5)
    with _EagerPool(2) as pool, rbr.use_backend("reference"):
        monkeypatch.setattr(_parallel, "_pool_of", lambda n_threads: pool)

        def was_used():
            n_before, pool.n_submitted = pool.n_submitted, 0
            return n_before > 0

        binner = rbr.Binner(max_bins=5, n_jobs=3)
        B = binner.fit_transform(X)
        assert was_used()
        solution = rbr.solve(B, y, loss=loss, constraints=constraints, max_iter=3, tol=0.1, n_jobs=3)
        assert was_used()
        model = rbr.AdditiveModel.from_solution(binner, solution)
        model.predict(X, n_jobs=3)
        assert was_used()


def _fit(n_jobs):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30_000, 20))
    y = (X[:, 0] + X[:, 3] ** 2 > rng.standard_normal(30_000)).astype(int)
    return RBRClassifier(n_jobs=n_jobs, max_iter=5, tol=1e-2).fit(X, y).decision_function(X[:100])


def _fit_in_child(queue):
    assert _parallel._pool is None, "threads do not survive a fork: the child must make its own"
    queue.put(_fit(2))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python warns of forks with threads, which is what is tested
def test_a_forked_child_fits_as_its_parent_does():
    expected = _fit(2)
    assert _parallel._pool is not None, "the parent's pool has been used"
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_fit_in_child, args=(queue,))
    child.start()
    child.join(120)
    if child.is_alive():
        child.terminate()
        pytest.fail("the child hangs")
    assert child.exitcode == 0
    assert_same_bits(queue.get(), expected)


def test_a_fit_has_the_same_bits_on_any_number_of_threads():
    expected = _fit(1)
    for n_jobs in (2, 3):
        assert_same_bits(_fit(n_jobs), expected)


def test_blas_has_one_thread_inside_and_its_own_again_outside():
    from threadpoolctl import threadpool_info, threadpool_limits

    def blas():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    with threadpool_limits(2, user_api="blas"):
        before = blas()
        first, second = _parallel.one_blas_thread(), _parallel.one_blas_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)  # not in reverse order, as may happen with threads
        assert all(n == 1 for n in blas())
        second.__exit__(None, None, None)
        assert blas() == before
