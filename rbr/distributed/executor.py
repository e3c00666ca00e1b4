"""`DaskParts`: parts of the rows on the workers of a Dask cluster.

Everything that is kept by row is the result of a task whose input is a part, and a part is the result of tasks that
read partitions. So Dask itself repairs a cluster that loses a worker: what was there is computed again elsewhere, from
the tables that the client sent and the partitions, and the fit goes on with the same bits.

An iteration of a fit is a chain of tasks, and each link waits for the scheduler. So rows are computed in the task of
the first sums over them, and the worker remembers them for the next; the tasks are told how to make them, should it
have forgotten them, or be another one. Only what several tasks need together becomes a result of its own.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import operator
import threading
import time
import uuid
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from rbr.objective.parts_leaves import Slices, Whole, list_of, rows_of, sums_of
from rbr.objective.parts_run import Kept
from rbr.objective.parts_tree import merged

# How often a waiting client looks whether there are still workers.
SECONDS_BETWEEN_LOOKS = 1.0

# How long a client tries to reach a worker before it asks the scheduler for results.
SECONDS_TO_REACH_A_WORKER = 2.0


def require_dask() -> Any:
    """The package `distributed`, or an error that says what to install."""
    try:
        import distributed
    except ImportError as error:
        raise ImportError("rbr.distributed needs dask and distributed: pip install 'rbr[dask]'") from error
    return distributed


def _run(call: Callable, *arguments: Any) -> Any:
    return call(*arguments)


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
        # The parts whose rows workers may remember.
        self.remembered_parts: set[str] = set()
        self._is_near: bool | None = None

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

    def submit_all(self, calls: Sequence[Callable], *arguments: Sequence[Any], name: str) -> list:
        """A task for each call, in one message; each runs where its largest argument is."""
        keys = [f"rbr-{name}-{uuid.uuid4().hex}" for _ in calls]
        futures = self.client.map(_run, calls, *map(list, arguments), key=keys, pure=False)
        self._asked.update(futures)
        return futures

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
        if self._is_near is None:
            reached = self._reaches(list(self.client.nthreads()))
            self._is_near = asyncio.run_coroutine_threadsafe(reached, loop).result()
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
            return await self.client.gather(futures, direct=self._is_near, asynchronous=True)
        except Exception as error:
            if any(future.status != "finished" for future in futures):
                raise _TaskError from error
            raise

    async def _reaches(self, workers: Sequence[str]) -> bool:
        """Whether the client can ask workers for results itself, which saves a detour through the scheduler."""
        from distributed.comm import connect

        try:
            for address in workers:
                comm = await connect(address, timeout=SECONDS_TO_REACH_A_WORKER, **self.client.connection_args)
                await comm.close()
        except (OSError, TimeoutError):
            return False
        return True

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
        if self.remembered_parts:
            self.client.run(_forget, sorted(self.remembered_parts), wait=False)


@dataclass(frozen=True, eq=False)
class _Call:
    """A sweep over one part, as it travels to a worker."""

    sweep: Callable
    whole: Whole
    function: Callable
    fixed: dict
    options: tuple = ()

    def __call__(self, part, *kept):
        return self.sweep(part, self.whole, self.function, _made(part, kept), self.fixed, *self.options)


class _Remembered:
    """The last few arrays by row of each part in the memory of a worker."""

    def __init__(self, most: int = 4):
        self._by_part: dict[str, OrderedDict[str, Slices]] = {}
        self._lock, self._most = threading.Lock(), most

    def keep(self, part: str, name: str, rows: Slices) -> None:
        with self._lock:
            own: OrderedDict[str, Slices] = self._by_part.setdefault(part, OrderedDict())
            own[name] = rows
            if len(own) > self._most:
                own.popitem(last=False)

    def look_up(self, part: str, name: str) -> Slices | None:
        with self._lock:
            own = self._by_part.get(part)
            if own is None or name not in own:
                return None
            own.move_to_end(name)
            return own[name]

    def forget(self, parts: Sequence[str]) -> None:
        with self._lock:
            for part in parts:
                self._by_part.pop(part, None)


_remembered = _Remembered()


async def _forget(parts: Sequence[str]) -> None:
    _remembered.forget(parts)


@dataclass(frozen=True, eq=False)
class _Recipe:
    """How to make the rows of a part, and the name by which a worker remembers them."""

    part: str
    name: str
    call: _Call

    def __call__(self, part, *kept):
        rows = _remembered.look_up(self.part, self.name)
        if rows is None:
            rows = self.call(part, *kept)
            _remembered.keep(self.part, self.name, rows)
        return rows


@dataclass(frozen=True, eq=False)
class _SumsOver:
    """Sums over the rows of a recipe."""

    recipe: _Recipe
    sums: _Call

    def __call__(self, part, *kept):
        return self.sums(part, self.recipe(part, *kept))


@dataclass(frozen=True, eq=False)
class _PartCall:
    """A function of a whole part, as it travels to a worker."""

    whole: Whole
    function: Callable
    fixed: dict

    def __call__(self, part, *kept):
        return self.function(part, self.whole, *_made(part, kept), **self.fixed)


def _made(part, kept: Sequence[Any]) -> list:
    """What is kept by row, made where it is only known how."""
    return [own(part) if isinstance(own, _Recipe) else own for own in kept]


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
        """The futures of a call for each part, and what it needs of all that is kept by row."""
        arguments = [own.as_arguments(self) for own in _rows(kept)]
        return self.cluster.submit_all([call] * self.n_parts, self.parts, *arguments, name=name)

    def rows(self, whole, function, *kept, n_sampled=None, **fixed) -> Kept:
        return Kept(_Rows(self, _Call(rows_of, whole, function, fixed, (n_sampled,)), kept))

    def total(self, whole, function, *kept, **fixed) -> tuple:
        call = _Call(sums_of, whole, function, fixed)
        trees = _rows(kept)[0].sums(call) if len(kept) == 1 else self._submitted(call, kept, "sums")
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


class _Rows(Sequence):
    """What parts keep by row: futures, if several tasks need it together, and until then how it is made."""

    def __init__(self, parts: DaskParts, call: _Call, kept: Sequence[Kept]):
        self._parts, self._kept = parts, _rows(kept)
        self._recipes = [_Recipe(part.key, uuid.uuid4().hex, call) for part in parts.parts]
        self._futures: list | None = None
        parts.cluster.remembered_parts.update(recipe.part for recipe in self._recipes)

    def sums(self, call: _Call) -> list:
        """The futures of sums over these rows."""
        parts = self._parts
        if self._futures is not None:
            return parts.cluster.submit_all([call] * parts.n_parts, parts.parts, self._futures, name="sums")
        calls = [_SumsOver(recipe, call) for recipe in self._recipes]
        return parts.cluster.submit_all(calls, parts.parts, *self._arguments(), name="sums")

    def as_arguments(self, parts: DaskParts) -> list:
        """What a task over parts is given of these rows: how to make them from one of these parts alone, or futures."""
        is_simple = self._futures is None and not self._kept and parts is self._parts
        return self._recipes if is_simple else self._asked_for()

    def _arguments(self) -> list:
        return [own.as_arguments(self._parts) for own in self._kept]

    def _asked_for(self) -> list:
        if self._futures is None:
            parts = self._parts
            self._futures = parts.cluster.submit_all(self._recipes, parts.parts, *self._arguments(), name="rows")
            self._kept = []
        return self._futures

    def __len__(self) -> int:
        return self._parts.n_parts

    def __getitem__(self, k):
        return self._asked_for()[k]


def _rows(kept: Sequence[Kept]) -> list[_Rows]:
    """What is kept here is rows."""
    return [cast(_Rows, own.of_parts) for own in kept]
