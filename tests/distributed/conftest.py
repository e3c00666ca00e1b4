"""One cluster of two processes on loopback for all tests of this folder."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def cluster():
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "host": "127.0.0.1"}
    with distributed.LocalCluster(**options, dashboard_address=None) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def client(cluster):
    import distributed

    with distributed.Client(cluster) as client:
        yield client
