"""`DaskParts`: parts of the rows on the workers of a Dask cluster.

Everything that is kept by row is the result of a task whose input is a part, and a part is the result of tasks that
read partitions. So Dask itself repairs a cluster that loses a worker: what was there is computed again elsewhere, from
the tables that the client sent and the partitions, and the fit goes on with the same bits.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import operator
import time
import uuid
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rbr.objective.parts_leaves import Whole, list_of, rows_of, sums_of
from rbr.objective.parts_run import Kept
from rbr.objective.parts_tree import merged

# How often a waiting client looks whether there are still workers.
SECONDS_BETWEEN_LOOKS = 1.0


def require_dask() -> Any:
    """The package `distributed`, or an error that says what to install."""
    try:
        import distributed
    except ImportError as error:
        raise ImportError("rbr.distributed needs dask and distributed: pip install 'rbr[dask]'") from error
    return distributed


class _TaskError(Exception):
    """A task has failed; its future knows why."""


class Cluster:
    """A client and what a fit has asked of it: waiting with an eye on the workers, and leaving nothing behind.

    Parameters
    ----------
    client : distributed.Client
    timeout : float
        Seconds to wait while there is no worker.
    """

    def __init__(self, client: Any, timeout: float):
        self.client, self.timeout = client, timeout
        self._asked: weakref.WeakSet = weakref.WeakSet()

    def workers(self) -> dict[str, int]:
        """{address: number of threads}, in a fixed order; a TimeoutError if none comes."""
        distributed = require_dask()
        try:
            self.client.wait_for_workers(1, timeout=self.timeout)
        except (TimeoutError, distributed.TimeoutError):
            raise self._no_workers() from None
        return dict(sorted(self.client.nthreads().items()))

    def _no_workers(self) -> TimeoutError:
        return TimeoutError(
            f"the cluster at {self.client.scheduler.address} has had no worker for {self.timeout:g} s; start workers, "
            f"or give them more time with timeout="
        )

    def submit(self, function: Callable, *args: Any, name: str, worker: str | None = None) -> Any:
        """A task, near its data or on a worker that is still there."""
        own = {} if worker is None else {"workers": [worker], "allow_other_workers": True}
        key = f"rbr-{name}-{uuid.uuid4().hex}"
        future = self.client.submit(function, *args, key=key, pure=False, **own)
        self._asked.add(future)
        return future

    def compute(self, lazy: Sequence[Any]) -> list:
        """The futures of delayed objects."""
        futures = self.client.compute(list(lazy))
        for future in futures:
            self._asked.add(future)
        return futures

    def gathered(self, futures: Sequence[Any], names: Sequence[str], on_wait: Callable[[int], None] | None = None):
        """The results; `names` says in errors what each of them is made of."""
        distributed = require_dask()
        loop, alone_since = self.client.loop.asyncio_loop, None
        answer = asyncio.run_coroutine_threadsafe(self._gather(list(futures)), loop)
        try:
            while True:
                try:
                    return answer.result(SECONDS_BETWEEN_LOOKS)
                except TimeoutError:
                    alone_since = None if self.client.nthreads() else alone_since or time.monotonic()
                    if alone_since is not None and time.monotonic() - alone_since > self.timeout:
                        raise self._no_workers() from None
                if on_wait is not None:
                    on_wait(sum(future.status == "finished" for future in futures))
        except (distributed.CancelledError, concurrent.futures.CancelledError, _TaskError):
            distributed.wait([future for future in futures if not future.cancelled()])
            for future, name in zip(futures, names, strict=True):
                if future.status != "finished":
                    raise self._explained(future, name) from None
            raise
        finally:
            answer.cancel()

    async def _gather(self, futures: list) -> list:
        """The results, or a `_TaskError` in place of the error of a task, which could be of any kind."""
        try:
            return await self.client.gather(futures, asynchronous=True)
        except Exception as error:
            if any(future.status != "finished" for future in futures):
                raise _TaskError from error
            raise

    def _explained(self, future: Any, name: str) -> BaseException:
        """The error of a task, which names its partition."""
        distributed = require_dask()
        if future.status in ("cancelled", "lost"):
            return RuntimeError(
                f"{name} cannot be computed again: the worker that held it is gone, and the cluster does not know how "
                f"it was made; make the collection from files or functions, or scatter it to several workers"
            )
        error = future.exception()
        if isinstance(error, distributed.scheduler.KilledWorker):
            return RuntimeError(f"{name} cannot be computed: the workers that tried it died, perhaps out of memory")
        if "partition " in str(error):
            return error
        return RuntimeError(f"{name} cannot be computed: {type(error).__name__}: {error}").with_traceback(None)

    def close(self) -> None:
        """Cancel what is still running and forget all results, so that the workers are as they were before."""
        left = [future for future in self._asked if not future.cancelled()]
        if left:
            self.client.cancel(left, force=True)


@dataclass(frozen=True, eq=False)
class _Call:
    """A sweep over one part, as it travels to a worker."""

    sweep: Callable
    whole: Whole
    function: Callable
    fixed: dict
    options: tuple = ()

    def __call__(self, part, *kept):
        return self.sweep(part, self.whole, self.function, kept, self.fixed, *self.options)


@dataclass(frozen=True, eq=False)
class _PartCall:
    """A function of a whole part, as it travels to a worker."""

    whole: Whole
    function: Callable
    fixed: dict

    def __call__(self, part, *kept):
        return self.function(part, self.whole, *kept, **self.fixed)


@dataclass(eq=False)
class DaskParts:
    """Parts on workers; an `rbr.objective.parts_run.Executor`.

    parts : futures of `Part`, in the order of their rows
    places : the worker of each
    names : what each is made of, for errors
    """

    cluster: Cluster
    parts: list
    places: list[str]
    names: list[str]
    n_threads: int = field(default=1)

    @property
    def n_parts(self) -> int:
        return len(self.parts)

    def _submitted(self, call: Callable, kept: Sequence[Kept], name: str) -> list:
        by_part = zip(*(own.of_parts for own in kept), strict=True) if kept else [()] * self.n_parts
        return [
            self.cluster.submit(call, part, *own, name=name, worker=place)
            for part, own, place in zip(self.parts, by_part, self.places, strict=True)
        ]

    def rows(self, whole, function, *kept, n_sampled=None, **fixed) -> Kept:
        return Kept(self._submitted(_Call(rows_of, whole, function, fixed, (n_sampled,)), kept, "rows"))

    def total(self, whole, function, *kept, **fixed) -> tuple:
        trees = self._submitted(_Call(sums_of, whole, function, fixed), kept, "sums")
        return merged(self.cluster.gathered(trees, self.names)).total()

    def listed(self, whole, function, *kept, **fixed) -> list:
        lists = self._submitted(_Call(list_of, whole, function, fixed), kept, "list")
        return [answer for own in self.cluster.gathered(lists, self.names) for answer in own]

    def added(self, whole, function, **fixed):
        sums = self._submitted(_PartCall(whole, function, fixed), (), "exact")
        while len(sums) > 1:  # pairwise, on the workers
            pairs = zip(sums[::2], sums[1::2], strict=False)
            halves = [self.cluster.submit(operator.add, *pair, name="add") for pair in pairs]
            sums = halves + sums[len(sums) & ~1 :]
        return self.cluster.gathered(sums, ["the sum of all parts"])[0]

    def mapped(self, whole, function, *kept, **fixed) -> DaskParts:
        parts = self._submitted(_PartCall(whole, function, fixed), kept, "part")
        return DaskParts(self.cluster, parts, self.places, self.names, self.n_threads)
