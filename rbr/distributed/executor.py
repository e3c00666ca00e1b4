"""`DaskParts`: parts of the rows on the workers of a Dask cluster.

Everything that is kept by row is the result of a task whose input is a part, and a part is the result of tasks that
read partitions. So Dask itself repairs a cluster that loses a worker: what was there is computed again elsewhere, from
the tables that the client sent and the partitions, and the fit goes on with the same bits.

An iteration of a fit is a chain of sums, and a task waits several milliseconds for the scheduler. So the workers that
hold the parts are asked for sums without a task (`Client.run`); if one of them is gone, or lacks what it needs, tasks
give the same answer. Rows are computed for the first sums over them, and the worker remembers them for the next; it is
told how to make them, should it have forgotten them, or be another one. Only what several sums need together becomes
the result of a task of its own.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import operator
import threading
import time
import uuid
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from rbr.objective.parts_leaves import Slices, Whole, list_of, rows_of, sums_of
from rbr.objective.parts_run import Kept
from rbr.objective.parts_tree import merged

# How often a waiting client looks whether there are still workers.
SECONDS_BETWEEN_LOOKS = 1.0

# Rows that are made in more steps than this from a part, and results of tasks, become results of tasks themselves.
MOST_STEPS = 16


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
        # By the key of a part, the worker that holds it.
        self._places: dict[str, str] = {}

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

    def submit_all(self, call: Callable, *columns: Sequence[Any], name: str) -> list:
        """A task for each row of the columns, in one message; each runs where its largest argument is."""
        keys = [f"rbr-{name}-{uuid.uuid4().hex}" for _ in columns[0]]
        futures = self.client.map(call, *map(list, columns), key=keys, pure=False)
        self._asked.update(futures)
        return futures

    def answers(self, call: Callable, parts: Sequence[Any], *columns: Sequence[Any], names: Sequence[str]) -> list:
        """What a call returns of each part and its row of the columns: at once where the part lies, or by tasks."""
        found = self._from_memory(call, parts, *columns)
        if found is None:
            return self.gathered(self.submit_all(call, parts, *columns, name="sums"), names)
        return found

    def _from_memory(self, call: Callable, parts: Sequence[Any], *columns: Sequence[Any]) -> list | None:
        """The answers of the workers that hold the parts; None if one of them does not have what it needs."""
        distributed = require_dask()
        rows = list(zip(parts, *columns, strict=True))
        results = [own for row in rows for own in row if isinstance(own, distributed.Future)]
        if any(result.status != "finished" for result in results):
            return None
        unknown = [part for part in parts if part.key not in self._places]
        if unknown:
            who_has = self.client.who_has(unknown)
            self._places.update({key: workers[0] for key, workers in who_has.items() if workers})
        by_place: dict[str, dict[int, list]] = defaultdict(dict)
        for number, row in enumerate(rows):
            stored = [_Stored(own.key) if isinstance(own, distributed.Future) else own for own in row]
            by_place[self._places.get(parts[number].key, "")][number] = stored
        found: dict[int, Any] = {}
        if "" not in by_place:
            for own in self._waited_for(self._run(call, dict(by_place))).values():
                found.update(own)
        if len(found) < len(rows):
            self._places.clear()
            return None
        return [found[number] for number in range(len(rows))]

    async def _run(self, call: Callable, by_place: dict[str, dict[int, list]]) -> dict[str, dict[int, Any]]:
        try:
            return await self.client.run(_answered_here, call, by_place, workers=list(by_place), on_error="ignore")
        except OSError:  # the scheduler does not answer; tasks wait for it
            return {}

    def compute(self, lazy: Sequence[Any]) -> list:
        """The futures of delayed objects."""
        futures = self.client.compute(list(lazy))
        for future in futures:
            self._asked.add(future)
        return futures

    def gathered(self, futures: Sequence[Any], names: Sequence[str], on_wait: Callable[[int], None] | None = None):
        """The results; `names` says in errors what each of them is made of."""
        distributed = require_dask()

        def look() -> None:
            if on_wait is not None:
                on_wait(sum(future.status == "finished" for future in futures))

        try:
            return self._waited_for(self._gather(list(futures)), look)
        except (distributed.CancelledError, concurrent.futures.CancelledError, _TaskError):
            distributed.wait([future for future in futures if not future.cancelled()])
            for future, name in zip(futures, names, strict=True):
                if future.status != "finished":
                    raise self._explained(future, name) from None
            raise

    def _waited_for(self, coroutine: Coroutine[Any, Any, Any], look: Callable[[], None] | None = None) -> Any:
        """What a coroutine of the client returns, unless there is no worker for too long."""
        answer, alone_since = asyncio.run_coroutine_threadsafe(coroutine, self.client.loop.asyncio_loop), None
        try:
            while True:
                try:
                    return answer.result(SECONDS_BETWEEN_LOOKS)
                except TimeoutError:
                    if answer.done():
                        raise
                    alone_since = None if self.client.nthreads() else alone_since or time.monotonic()
                    if alone_since is not None and time.monotonic() - alone_since > self.timeout:
                        raise self._no_workers() from None
                if look is not None:
                    look()
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


@dataclass(frozen=True)
class _Stored:
    """The result of a task, by its key."""

    key: str


async def _answered_here(call: Callable, by_place: dict[str, dict[int, list]], dask_worker: Any) -> dict[int, Any]:
    """On a worker: what a call returns of the parts it holds, by the threads of its tasks; nothing if one fails."""
    stored, threads, loop = dask_worker.data, dask_worker.executors["default"], asyncio.get_running_loop()
    try:
        rows = by_place[dask_worker.address]
        given = [[stored[own.key] if isinstance(own, _Stored) else own for own in row] for row in rows.values()]
        answers = await asyncio.gather(*(loop.run_in_executor(threads, call, *row) for row in given))
    except Exception:  # the tasks that are asked next will say what is wrong
        return {}
    return dict(zip(rows, answers, strict=True))


class _Remembered:
    """The last few arrays by row of each part in the memory of a worker, for as long as the part is there."""

    def __init__(self, most: int = 4):
        self._by_part: weakref.WeakKeyDictionary[Any, OrderedDict[str, Slices]] = weakref.WeakKeyDictionary()
        self._lock, self._most = threading.Lock(), most

    def keep(self, part: Any, name: str, rows: Slices) -> None:
        with self._lock:
            own = self._by_part.setdefault(part, OrderedDict())
            own[name] = rows
            if len(own) > self._most:
                own.popitem(last=False)

    def look_up(self, part: Any, name: str) -> Slices | None:
        with self._lock:
            own = self._by_part.get(part)
            if own is None or name not in own:
                return None
            own.move_to_end(name)
            return own[name]


_remembered = _Remembered()


class _Given:
    """Rows that are the result of a task."""

    n_given, n_steps = 1, 0

    def __call__(self, part, rows):
        return rows


@dataclass(frozen=True, eq=False)
class _Applied:
    """A call over a part and rows, each made from the next n_given of the results that are given."""

    call: Callable
    kept: tuple[_Recipe | _Given, ...]

    @property
    def n_given(self) -> int:
        return sum(own.n_given for own in self.kept)

    def __call__(self, part, *given):
        left = iter(given)
        return self.call(part, *(own(part, *itertools.islice(left, own.n_given)) for own in self.kept))


@dataclass(frozen=True, eq=False)
class _Recipe(_Applied):
    """How to make rows of a part, and the name by which a worker remembers them."""

    name: str

    @property
    def n_steps(self) -> int:
        return 1 + max((own.n_steps for own in self.kept), default=0)

    def __call__(self, part, *given):
        rows = _remembered.look_up(part, self.name)
        if rows is None:
            rows = super().__call__(part, *given)
            _remembered.keep(part, self.name, rows)
        return rows


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

    def _made_of(self, kept: Sequence[Kept]) -> tuple[tuple, list]:
        """How the rows are made that a call needs, and the columns of results that this takes."""
        made = [own.made_of(self) for own in _rows(kept)]
        return tuple(recipe for recipe, _ in made), [column for _, columns in made for column in columns]

    def _answers(self, call: Callable, kept: Sequence[Kept]) -> list:
        recipes, columns = self._made_of(kept)
        return self.cluster.answers(_Applied(call, recipes), self.parts, *columns, names=self.names)

    def rows(self, whole, function, *kept, n_sampled=None, **fixed) -> Kept:
        return Kept(_Rows(self, _Call(rows_of, whole, function, fixed, (n_sampled,)), kept))

    def total(self, whole, function, *kept, **fixed) -> tuple:
        if len(kept) > 1:
            for own in _rows(kept):
                own.keep()
        return merged(self._answers(_Call(sums_of, whole, function, fixed), kept)).total()

    def listed(self, whole, function, *kept, **fixed) -> list:
        lists = self._answers(_Call(list_of, whole, function, fixed), kept)
        return [answer for own in lists for answer in own]

    def added(self, whole, function, **fixed):
        sums = self.cluster.submit_all(_PartCall(whole, function, fixed), self.parts, name="exact")
        while len(sums) > 1:  # pairwise, on the workers
            pairs = zip(sums[::2], sums[1::2], strict=False)
            halves = [self.cluster.submit(operator.add, *pair, name="add") for pair in pairs]
            sums = halves + sums[len(sums) & ~1 :]
        return self.cluster.gathered(sums, ["the sum of all parts"])[0]

    def mapped(self, whole, function, *kept, **fixed) -> DaskParts:
        recipes, columns = self._made_of(kept)
        call = _Applied(_PartCall(whole, function, fixed), recipes)
        parts = self.cluster.submit_all(call, self.parts, *columns, name="part")
        return DaskParts(self.cluster, parts, self.places, self.names, self.n_threads)


class _Rows(Sequence):
    """What parts keep by row: how it is made, or results of tasks, if several sums need it or it takes many steps."""

    def __init__(self, parts: DaskParts, call: _Call, kept: Sequence[Kept]):
        self._parts = parts
        recipes, self._columns = parts._made_of(kept)
        self._recipe = _Recipe(call, recipes, uuid.uuid4().hex)
        self._futures: list | None = None

    def made_of(self, parts: DaskParts) -> tuple[_Recipe | _Given, list]:
        """How a call over parts is given these rows, and the columns of results that this takes."""
        if parts is not self._parts or self._recipe.n_steps >= MOST_STEPS:
            self.keep()
        return (self._recipe, self._columns) if self._futures is None else (_Given(), [self._futures])

    def keep(self) -> list:
        """Make the rows results of tasks, which stay on the workers."""
        if self._futures is None:
            parts = self._parts
            self._futures = parts.cluster.submit_all(self._recipe, parts.parts, *self._columns, name="rows")
            self._columns = []
        return self._futures

    def __len__(self) -> int:
        return self._parts.n_parts

    def __getitem__(self, k):
        return self.keep()[k]


def _rows(kept: Sequence[Kept]) -> list[_Rows]:
    """What is kept here is rows."""
    return [cast(_Rows, own.of_parts) for own in kept]
