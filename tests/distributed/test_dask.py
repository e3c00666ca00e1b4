"""Fits on a cluster: the model of rows in memory, whatever the partitions, and what happens when something is wrong."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import threading
import time

import numpy as np
import pandas as pd
import pytest
from problems import in_parts, objective_of
from sklearn.base import clone

import rbr
from rbr.data.sketches import TableSketch
from rbr.distributed import DaskRBRClassifier, DaskRBRRegressor, executor
from rbr.distributed.partitions import Sketched, merge_sketches, runs_of
from rbr.objective import parts_sums

distributed = pytest.importorskip("distributed")
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore::UserWarning")]

import dask.array as da  # noqa: E402
import dask.dataframe as dd  # noqa: E402
from dask import delayed  # noqa: E402


def small_leaves(estimator, rows=256, on_client=0):
    """So that a few thousand rows are several parts, which stay on the workers."""
    estimator._rows_per_leaf, estimator._most_rows_on_client = rows, on_client
    return estimator


def table(n=3000, seed=0):
    """Numbers, missing values and a category, whose levels are not the same in all parts of the table."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, 4)).round(3), columns=["a", "b", "c", "d"])
    frame.loc[rng.random(n) < 0.1, "b"] = np.nan
    frame["k"] = np.where(np.arange(n) < n // 3, rng.choice(["x", "y"], n), rng.choice(["x", "y", "z"], n))
    score = frame["a"] + 2.0 * (frame["b"] > 0) * (frame["c"] > 0.2) + (frame["k"] == "z")
    return frame, score.to_numpy(), rng


def target(loss, score, rng):
    return {
        "squared_error": lambda: score + 0.5 * rng.normal(size=len(score)),
        "log_loss": lambda: np.where(rng.random(len(score)) < 1 / (1 + np.exp(1 - score)), "yes", "no"),
        "poisson": lambda: rng.poisson(np.exp(score / 2)).astype(float),
        "multinomial": lambda: np.digitize(score + rng.logistic(size=len(score)), [-0.5, 1.0]),
    }[loss]()


def assert_same_model(found, expected):
    np.testing.assert_allclose(found.intercept, expected.intercept, atol=1e-9)
    assert [term.name for term in found.terms] == [term.name for term in expected.terms]
    for one, other in zip(found.terms, expected.terms, strict=True):
        np.testing.assert_allclose(one.values, other.values, atol=1e-9, rtol=0)


@pytest.mark.parametrize("loss", ["squared_error", "log_loss", "poisson", "multinomial"])
def test_the_model_is_that_of_memory_for_any_partitions(client, loss):
    frame, score, rng = table()
    y = target(loss, score, rng)
    weight = rng.integers(0, 4, len(frame)).astype(float)
    is_class = loss in ("log_loss", "multinomial")
    pairs = 1 if loss == "log_loss" else [("b", "c")]
    options = {"n_bags": 0, "interactions": pairs} | ({} if is_class else {"loss": loss})
    local = (rbr.RBRClassifier if is_class else rbr.RBRRegressor)(**options).fit(frame, y, weight)
    assert any(len(term.columns) == 2 for term in local.terms_)
    models = []
    for n_partitions in (2, 7):
        X = dd.from_pandas(frame, npartitions=n_partitions, sort=False)
        own = (DaskRBRClassifier if is_class else DaskRBRRegressor)(client=client, **options)
        series = [dd.from_pandas(pd.Series(a), npartitions=n_partitions, sort=False) for a in (y, weight)]
        found = small_leaves(own).fit(X, *series)
        models.append(found.model_)
        np.testing.assert_array_equal(found.selected_features_, local.selected_features_)
        assert_same_model(found.model_, local.model_)
    for one, other in zip(models[0].terms, models[1].terms, strict=True):
        np.testing.assert_array_equal(one.values, other.values)


@pytest.mark.parametrize("loss", ["squared_error", "log_loss", "poisson", "multinomial"])
def test_single_fits_and_averages_agree_to_nine_digits(client, loss):
    frame, score, rng = table(2000)
    X, y = frame[["a", "b", "c"]].to_numpy(), target(loss, score, rng)
    is_class = loss in ("log_loss", "multinomial")
    for n_bags in (0, "auto"):
        options = {"n_bags": n_bags} | ({} if is_class else {"loss": loss})
        local = (rbr.RBRClassifier if is_class else rbr.RBRRegressor)(**options).fit(X, y)
        own = (DaskRBRClassifier if is_class else DaskRBRRegressor)(client=client, **options)
        own = own if n_bags == "auto" else small_leaves(own)
        own.fit(da.from_array(X, chunks=(600, 2)), da.from_array(y, chunks=(700,)))
        assert_same_model(own.model_, local.model_)


def test_many_rows_have_the_edges_and_the_model_of_memory(client):
    frame, score, rng = table(210_000)
    y = target("log_loss", score, rng)
    local = rbr.RBRClassifier(interactions=[("b", "c")]).fit(frame, y)
    models = []
    for n_partitions in (3, 8):
        X, series = (dd.from_pandas(a, npartitions=n_partitions, sort=False) for a in (frame, pd.Series(y)))
        models.append(DaskRBRClassifier(client=client, interactions=[("b", "c")]).fit(X, series).model_)
        assert_same_model(models[-1], local.model_)
    assert models[0].to_dict() == models[1].to_dict()
    for one, other in zip(models[0].terms, local.model_.terms, strict=True):
        if len(one.columns) == 1:
            np.testing.assert_array_equal(one.edges, other.edges)


def test_answers_are_lazy_collections(client):
    frame, score, rng = table(1200)
    y = target("multinomial", score, rng)
    X = dd.from_pandas(frame, npartitions=3, sort=False)
    m = small_leaves(DaskRBRClassifier(client=client, n_bags=0)).fit(X, dd.from_pandas(pd.Series(y), npartitions=3))
    local = m.to_local()
    assert type(local) is rbr.RBRClassifier
    assert isinstance(m.predict(X), dd.Series)
    assert (m.predict(X).compute().to_numpy() == local.predict(frame)).all()
    proba = m.predict_proba(X)
    assert isinstance(proba, dd.DataFrame) and list(proba.columns) == [0, 1, 2]
    np.testing.assert_array_equal(proba.compute().to_numpy(), local.predict_proba(frame))
    expected = local.explain(frame, output="pandas")
    found = m.explain(X)
    assert list(found.columns) == list(expected.columns)
    np.testing.assert_array_equal(found.compute().to_numpy(), expected.to_numpy())

    numbers = frame[["a", "c"]].to_numpy()
    offset = rng.normal(size=1200)
    Z, shift = da.from_array(numbers, chunks=(500, 1)), da.from_array(offset, chunks=400)
    r = DaskRBRRegressor(client=client, n_bags=0).fit(Z, da.from_array(score + offset, chunks=300), offset=shift)
    assert isinstance(r.predict(Z), da.Array) and r.predict(Z).shape == (1200,)
    np.testing.assert_array_equal(r.predict(Z, offset=shift).compute(), r.to_local().predict(numbers, offset=offset))
    assert r.explain(Z).shape == (1200, len(r.terms_))
    np.testing.assert_array_equal(r.explain(Z).compute(), r.to_local().explain(numbers))
    np.testing.assert_array_equal(r.predict(numbers), r.to_local().predict(numbers))
    again = pickle.loads(pickle.dumps(r))
    assert again.client is None
    assert clone(r).get_params()["n_bags"] == 0
    assert clone(r).client is client
    with pytest.raises(TypeError, match="has no score over Dask collections"):
        r.score(Z, shift)
    assert r.score(numbers, score + offset, offset=offset) == r.to_local().score(numbers, score + offset, offset=offset)


def test_class_weights_and_progress(client, capsys):
    frame, score, rng = table(1500)
    y = target("log_loss", score, rng)
    local = rbr.RBRClassifier(n_bags=0, class_weight="balanced").fit(frame, y)
    X, series = (
        dd.from_pandas(frame, npartitions=4, sort=False),
        dd.from_pandas(pd.Series(y), npartitions=4, sort=False),
    )
    own, seen = DaskRBRClassifier(client=client, n_bags=0, class_weight="balanced", verbose=1), []
    small_leaves(own).fit(X, series, callback=lambda progress: seen.append(progress.stage))
    assert_same_model(own.model_, local.model_)
    assert {"targets", "sketches", "codes", "fit"} <= set(seen)
    printed = capsys.readouterr().out
    assert "codes: 4 of 4 partitions" in printed


# Faults ----------------------------------------------------------------------------------------------------------


def slow_part(seed, n, seconds=0.0):
    time.sleep(seconds)
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 4))


def generated(n_partitions, n=1500):
    """Partitions that are made by a function, so that they can be made again."""
    make = delayed(slow_part, pure=True)
    X = da.concatenate([da.from_delayed(make(seed, n), (n, 4), dtype=float) for seed in range(n_partitions)])
    noise = da.concatenate(
        [da.from_delayed(make(100 + seed, n)[:, 0], (n,), dtype=float) for seed in range(n_partitions)]
    )
    return X, X[:, 0] + 2.0 * (X[:, 1] > 0.3) + 0.5 * noise


def nothing_left(client, seconds=10.0):
    """Whether the workers hold nothing, after a while."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not any(
            client.run_on_scheduler(lambda dask_scheduler: [k for k in dask_scheduler.tasks if "rbr-" in str(k)])
        ):
            return True
        time.sleep(0.1)
    return False


def test_a_killed_worker_costs_a_recomputation(client):
    X, y = generated(6)
    options = {"client": client, "loss": "huber", "n_bags": 0}
    expected = small_leaves(DaskRBRRegressor(**options)).fit(X, y)
    victims = list(client.run(os.getpid).values())
    killed = []

    def kill(progress):
        if progress.stage == "fit" and progress.n_rows == 2 and not killed:
            killed.append(victims[0])
            os.kill(victims[0], signal.SIGKILL)

    found = small_leaves(DaskRBRRegressor(**options)).fit(X, y, callback=kill)
    assert killed
    np.testing.assert_array_equal(found.predict(X).compute(), expected.predict(X).compute())
    client.wait_for_workers(2, timeout=120)
    assert victims[0] not in client.run(os.getpid).values()
    assert nothing_left(client)


def test_rows_that_no_worker_remembers_are_made_again(client, monkeypatch):
    """Workers remember the last rows of a part; without that memory every task makes what it needs."""
    X, y = generated(6)
    options = {"client": client, "loss": "huber", "n_bags": 0}
    expected = small_leaves(DaskRBRRegressor(**options)).fit(X, y)
    calls = []

    def forgetful(self, part, name):
        calls.append(name)

    monkeypatch.setattr(executor._Remembered, "look_up", forgetful)
    with distributed.Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None) as own:
        X, y = generated(6)
        found = small_leaves(DaskRBRRegressor(**options | {"client": own})).fit(X, y)
        assert len(calls) > 10
        end = time.monotonic() + 10.0
        while executor._remembered._by_part and time.monotonic() < end:
            time.sleep(0.1)
        assert not executor._remembered._by_part
    np.testing.assert_array_equal(found.predict(X).compute(), expected.predict(X).compute())


class OfRows:
    """In the place of a part."""


def test_workers_remember_the_last_rows_of_each_part_while_it_is_there():
    memory, part, other = executor._Remembered(most=2), OfRows(), OfRows()
    for name in "abc":
        memory.keep(part, name, name)
    memory.keep(other, "a", "other")
    assert [memory.look_up(part, name) for name in "abc"] == [None, "b", "c"]
    memory.look_up(part, "b")
    memory.keep(part, "d", "d")
    assert memory.look_up(part, "c") is None and memory.look_up(part, "b") == "b"
    del part
    assert len(memory._by_part) == 1 and memory.look_up(other, "a") == "other"


class Counted:
    """How sums were taken during a fit: from the memory of workers, or by tasks since that failed."""

    def __init__(self, monkeypatch, change=lambda number, found: found):
        self.at_once, self.by_tasks = 0, 0
        plain = executor.Cluster._from_memory

        def counted(cluster, *given):
            found = change(self.at_once + self.by_tasks, plain(cluster, *given))
            self.at_once += found is not None
            self.by_tasks += found is None
            return found

        monkeypatch.setattr(executor.Cluster, "_from_memory", counted)


def huber(client, **options):
    return small_leaves(DaskRBRRegressor(client=client, loss="huber", n_bags=0, **options))


def test_sums_are_no_tasks_of_the_scheduler(client, monkeypatch):
    X, y = generated(6)
    counted, tasks, plain = Counted(monkeypatch), [], executor.Cluster.submit_all

    def submitted(cluster, *given, name):
        tasks.append(name)
        return plain(cluster, *given, name=name)

    monkeypatch.setattr(executor.Cluster, "submit_all", submitted)
    found = huber(client).fit(X, y)
    assert counted.at_once > 20 and counted.by_tasks == tasks.count("sums") <= 0.2 * counted.at_once
    monkeypatch.setattr(executor.Cluster, "_from_memory", lambda cluster, *given: None)
    expected = huber(client).fit(X, y)
    np.testing.assert_array_equal(found.predict(X).compute(), expected.predict(X).compute())
    assert nothing_left(client)


def test_sums_that_a_worker_does_not_answer_are_tasks(client, monkeypatch):
    """A worker that lacks a part, or fails, answers nothing; then tasks answer, or say what is wrong."""
    X, y = generated(6)
    expected = huber(client).fit(X, y)
    counted, plain = Counted(monkeypatch), executor.Cluster._run

    async def lost_now_and_then(cluster, call, by_place):
        found = await plain(cluster, call, by_place)
        return {place: {} for place in found} if counted.at_once % 3 == 1 and counted.by_tasks < 20 else found

    monkeypatch.setattr(executor.Cluster, "_run", lost_now_and_then)
    found = huber(client).fit(X, y)
    assert counted.by_tasks >= 20 and counted.at_once > 10
    np.testing.assert_array_equal(found.predict(X).compute(), expected.predict(X).compute())


both = threading.Barrier(2)


def met(part):
    both.wait(30.0)
    return part


def test_parts_of_a_worker_with_threads_are_swept_together(monkeypatch):
    with distributed.Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None) as own:
        parts, counted = own.scatter([1, 2], hash=False), Counted(monkeypatch)
        assert executor.Cluster(own, 60.0).answers(met, parts, names=["one", "two"]) == [1, 2]
        assert counted.at_once == 1


def test_a_worker_that_dies_during_sums_costs_a_recomputation(client, monkeypatch):
    """The worker is killed between the message that asks for sums and its answer."""
    X, y = generated(6)
    expected = huber(client).fit(X, y)
    client.wait_for_workers(2, timeout=120)
    counted, victims, plain = Counted(monkeypatch), list(client.run(os.getpid).values()), executor.Cluster._run

    async def deadly(cluster, call, by_place):
        if counted.at_once == 10 and len(victims) == 2:
            call = DiesIn(victims.pop(0), call)
        return await plain(cluster, call, by_place)

    monkeypatch.setattr(executor.Cluster, "_run", deadly)
    found = huber(client).fit(X, y)
    assert len(victims) == 1 and counted.by_tasks > 0 and counted.at_once > 12
    np.testing.assert_array_equal(found.predict(X).compute(), expected.predict(X).compute())
    client.wait_for_workers(2, timeout=120)
    assert nothing_left(client)


def test_rows_of_many_steps_become_results(client, monkeypatch):
    """A chain of changes, as when tables are changed one after another, is a task once in a while."""
    client.wait_for_workers(2, timeout=120)
    design = rbr.BinnedMatrix([[0, 1] * 150], [0, 2])
    local = in_parts(objective_of(design, np.sin(np.arange(300.0))), 3)
    own = executor.Cluster(client, 60.0)
    parts = client.scatter(list(local._parts.parts), hash=False)
    tasks, plain, totals = [], executor.Cluster.submit_all, []

    def submitted(cluster, *given, name):
        tasks.append(name)
        return plain(cluster, *given, name=name)

    monkeypatch.setattr(executor.Cluster, "submit_all", submitted)
    for over in (local._parts, executor.DaskParts(own, parts, [""] * 3, ["part"] * 3)):
        rows = over.rows(local._whole, parts_sums.scores, tables=parts_sums.Packed(np.array([0]), np.array([0.1, 0.7])))
        for k in range(40):
            rows = over.rows(local._whole, parts_sums.moved, rows, table=0, change=np.array([0.1 * k, -0.3]))
            totals.append(over.total(local._whole, parts_sums.sum_by_output, rows)[0])
    np.testing.assert_array_equal(totals[:40], totals[40:])
    assert tasks.count("rows") == 2 and len(tasks) <= 4
    own.close()


class DiesIn:
    """A call that kills the process with a number, should it be that."""

    def __init__(self, victim, call):
        self.victim, self.call = victim, call

    def __call__(self, *given):
        if os.getpid() == self.victim:
            os.kill(self.victim, signal.SIGKILL)
        return self.call(*given)


def test_a_partition_that_cannot_be_recomputed_is_named(client):
    client.wait_for_workers(2, timeout=120)
    rng = np.random.default_rng(0)
    workers = sorted(client.nthreads())
    arrays = [rng.normal(size=(1500, 3)) for _ in range(4)]
    held = [client.scatter(a, workers=[workers[i % 2]], hash=False) for i, a in enumerate(arrays)]
    X = da.concatenate([da.from_delayed(delayed(f), (1500, 3), dtype=float) for f in held])
    y = da.from_array(np.concatenate(arrays)[:, 0].round(1), chunks=1500)
    pids, killed = client.run(os.getpid), []

    def kill(progress):
        if progress.stage == "fit" and not killed:
            killed.extend(pids.values())  # all, since Dask may have copied what one of them holds
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    model = small_leaves(DaskRBRRegressor(client=client, n_bags=0, loss="huber", timeout=30))
    start = time.monotonic()
    with pytest.raises(RuntimeError, match="partition .* cannot be computed again"):
        model.fit(X, y, callback=kill)
    assert killed and time.monotonic() - start < 60
    assert not hasattr(model, "model_")
    client.wait_for_workers(2, timeout=120)


def test_a_cluster_without_workers_is_given_up():
    import distributed

    with distributed.LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address=None) as empty:
        with distributed.Client(empty, set_as_default=False) as alone:
            X, y = generated(2, 100)
            with pytest.raises(TimeoutError, match="has had no worker for 0.5 s"):
                DaskRBRRegressor(client=alone, timeout=0.5).fit(X, y)


def test_a_cluster_that_loses_all_workers_during_a_fit_is_given_up():
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**options) as shrinking, distributed.Client(shrinking, set_as_default=False) as own:
        X, y = generated(4)
        model = huber(own, timeout=1.0)
        with pytest.raises(TimeoutError, match="has had no worker for 1 s"):
            model.fit(X, y, callback=lambda progress: shrinking.scale(0) if progress.stage == "fit" else None)
        assert not hasattr(model, "model_")


def test_partitions_may_be_empty_and_lack_classes(client):
    frame, score, rng = table(900)
    y = np.sort(target("multinomial", score, rng))
    pieces = [slice(0, 0), slice(0, 400), slice(400, 400), slice(400, 900)]
    X = dd.from_delayed([delayed(frame.iloc[p]) for p in pieces], meta=frame.iloc[:0])
    series = dd.from_delayed([delayed(pd.Series(y)[p]) for p in pieces], meta=pd.Series(y)[:0])
    found = small_leaves(DaskRBRClassifier(client=client, n_bags=0), 128).fit(X, series)
    local = rbr.RBRClassifier(n_bags=0).fit(frame, y)
    assert found.classes_.tolist() == [0, 1, 2]
    assert_same_model(found.model_, local.model_)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda part: part.drop(columns="c"), "partition 2 lacks the columns \\['c'\\], compared with partition 0"),
        (lambda part: part.assign(k=1.5), "partition 2.*'k'"),
        (lambda part: part.iloc[:-3], "partition 2: y has .* rows, and X has"),
        (lambda part: 1 / 0, "partition 2 cannot be computed: ZeroDivisionError"),
    ],
)
def test_a_bad_partition_is_named(client, change, message):
    frame, score, _ = table(800)
    parts = [delayed(frame.iloc[200 * i : 200 * i + 200]) for i in range(4)]
    parts[2] = delayed(change)(parts[2])
    X = dd.from_delayed(parts, meta=frame.iloc[:0], verify_meta=False)
    y = dd.from_delayed([delayed(pd.Series(score[200 * i : 200 * i + 200])) for i in range(4)], meta=pd.Series([0.0]))
    with pytest.raises((ValueError, RuntimeError), match=message):
        DaskRBRRegressor(client=client).fit(X, y)
    assert nothing_left(client)


@pytest.mark.parametrize(
    ("y", "loss", "message"),
    [
        ([1.0, 2.0, -3.0, 4.0], "poisson", "partition 1.*-3.0; y must be at least 0"),
        ([1.0, np.nan, 3.0, 4.0], "squared_error", "partition 0.*nan; y must be finite"),
        ([0.0, 0.0, 0.0, 0.0], "poisson", "y is 0 in every row"),
    ],
)
def test_bad_targets_name_their_partition(client, y, loss, message):
    X = da.from_array(np.arange(8.0).reshape(4, 2), chunks=2)
    with pytest.raises(ValueError, match=message):
        DaskRBRRegressor(client=client, loss=loss).fit(X, da.from_array(np.array(y), chunks=2))


def test_bad_arguments_are_named(client):
    X = da.ones((6, 2), chunks=3)
    with pytest.raises(TypeError, match="X is a ndarray; it must be a Dask array or dataframe"):
        DaskRBRRegressor(client=client).fit(np.ones((6, 2)), np.ones(6))
    with pytest.raises(ValueError, match="y has 3 partitions, and X has 2"):
        frame = dd.from_pandas(pd.DataFrame({"a": range(6)}), npartitions=2)
        DaskRBRRegressor(client=client).fit(frame, dd.from_pandas(pd.Series(range(6)), npartitions=3))
    with pytest.raises(TypeError, match="client is a str"):
        DaskRBRRegressor(client="tcp://nowhere").fit(X, X[:, 0])
    with pytest.raises(ValueError, match=r"partition 0: y has shape \(3, 2\); it must be one column"):
        DaskRBRRegressor(client=client).fit(X, X)
    with pytest.raises(ValueError, match="partition .*: y holds text or other objects; a regressor needs numbers"):
        DaskRBRRegressor(client=client).fit(X, da.from_array(np.array(list("abcdef")), chunks=3))
    with pytest.raises(ValueError, match=r"partition .*: sample_weight\[0\] is -1.0; all of sample_weight must be at"):
        DaskRBRRegressor(client=client).fit(X, X[:, 0], sample_weight=-X[:, 0])
    with pytest.raises(ValueError, match="only one class"):
        DaskRBRClassifier(client=client).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="timeout is 0"):
        DaskRBRRegressor(client=client, timeout=0).fit(X, X[:, 0])


def test_parameters_may_have_no_names(client):
    own = DaskRBRRegressor("poisson", client=client, max_features=2)
    assert own.loss == "poisson" and clone(own).get_params()["loss"] == "poisson"
    assert set(own.get_params()) == set(rbr.RBRRegressor().get_params()) | {"client", "timeout"}


def test_clients_that_cannot_fit_are_named(cluster):
    X = da.ones((6, 2), chunks=3)
    closed = distributed.Client(cluster, set_as_default=False)
    closed.close()
    with pytest.raises(ValueError, match="client is closed; it must be open"):
        DaskRBRRegressor(client=closed).fit(X, X[:, 0])

    async def fit():
        async with distributed.Client(cluster.scheduler_address, asynchronous=True, set_as_default=False) as own:
            DaskRBRRegressor(client=own).fit(X, X[:, 0])

    with pytest.raises(ValueError, match="client is asynchronous"):
        asyncio.run(fit())


def test_ctrl_c_leaves_the_workers_clean(client):
    X, y = generated(4)

    def interrupt(progress):
        if progress.stage == "fit":
            raise KeyboardInterrupt

    model = small_leaves(DaskRBRRegressor(client=client, n_bags=0, loss="huber"))
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y, callback=interrupt)
    assert nothing_left(client)
    assert not hasattr(model, "model_")


def test_a_signal_while_waiting_leaves_the_workers_clean(client):
    make = delayed(slow_part, pure=True)
    X = da.concatenate([da.from_delayed(make(seed, 200, 3.0), (200, 4), dtype=float) for seed in range(4)])
    timer = threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        DaskRBRRegressor(client=client).fit(X, X[:, 0])
    assert nothing_left(client, 20.0)


def slow_answer(part):
    time.sleep(3.0)


def test_a_signal_while_workers_answer(client):
    own, parts = executor.Cluster(client, 60.0), client.scatter([1, 2], hash=False)
    threading.Timer(1.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        own.answers(slow_answer, parts, names=["one", "two"])
    assert time.monotonic() - start < 2.5
    assert nothing_left(client)


def test_sketches_stay_as_they_are_when_they_are_merged():
    """A task that is run again, because a worker was lost, finds what the first run found."""
    parts = []
    for first_row in (0, 10):
        sketch = TableSketch(rbr.Binner(), first_row)
        sketch.add(pd.DataFrame({"a": np.arange(10.0) + first_row, "k": list("xyxyxyxyxy")}))
        parts.append(Sketched(sketch, None, f"partition {first_row}"))
    before = pickle.dumps(parts)
    edges = [merge_sketches(*parts).sketch.fit().edges_[0] for _ in range(2)]
    np.testing.assert_array_equal(*edges)
    assert len(edges[0]) == 19 and pickle.dumps(parts) == before


def test_runs_of_rows_for_a_part():
    assert runs_of([5, 0, 3, 4], 0, 6) == [(0, 0, 5), (2, 0, 1)]
    assert runs_of([5, 0, 3, 4], 6, 12) == [(2, 1, 3), (3, 0, 4)]
