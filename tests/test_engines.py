"""Studies on engines that exist: local processes, Dask, Ray; the same numbers, whoever dies meanwhile."""

import os
import signal
import threading
import warnings

import joblib
import numpy as np
import pytest

import queuemodel as qm
from queuemodel.data import example_profile
from queuemodel.parallel import run_tasks
from queuemodel.scheduling import FIFO, Cluster, EqualShare
from queuemodel.scheduling.streams import JobKind, Stream
from queuemodel.scheduling.study import sweep
from queuemodel.solvers import solve_batch
from queuemodel.traces import trace_runs

KIND = JobKind("image", curve={1: 2.0, 2: 3.8, 4: 6.9, 8: 11.0}, steps=20_000, requested_nodes=4)
STREAM = Stream([KIND], jobs=60, nodes=16)
DEMANDS = np.random.default_rng(0).uniform(0.1, 1.0, size=(40, 3))


def study(**engine):
    where = Cluster(STREAM.nodes)
    return sweep(STREAM, [EqualShare(), FIFO()], loads=[0.3, 0.6], cluster=where, replications=3, **engine).to_rows()


def simulated(**engine):
    runs = trace_runs(example_profile("alexnet-60"), workers=[1, 2], replications=2, steps=80, seed=3, **engine)
    return [[one.throughput for one in row] for row in runs]


def part(rows):
    return solve_batch(DEMANDS[rows], think_time=1.0, population=8).throughput


def solved(**engine):
    parts = np.array_split(np.arange(len(DEMANDS)), 4)
    return np.concatenate(joblib.Parallel(**engine)(joblib.delayed(part)(rows) for rows in parts)).tolist()


@pytest.fixture
def dask():
    distributed = pytest.importorskip("distributed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the engine's own
        cluster = distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, memory_limit=None
        )
        with cluster, distributed.Client(cluster) as client:
            yield client


@pytest.mark.live
def test_dask_gives_the_same_numbers_though_a_worker_is_killed(dask):
    first = next(iter(dask.run(os.getpid).values()))
    threading.Timer(0.5, os.kill, (first, signal.SIGKILL)).start()
    assert study(n_jobs=2, backend="dask") == study()
    with joblib.parallel_config("dask"):
        assert simulated(jobs=2) == simulated()
        assert solved(n_jobs=2) == part(slice(None)).tolist()
    assert first not in dask.run(os.getpid).values()


@pytest.mark.live
def test_ray_gives_the_same_numbers():
    ray = pytest.importorskip("ray")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 * 2**20)
        except Exception as error:  # Ray gives up where the machine is too busy to start its own servers
            pytest.skip(f"Ray does not start here: {error}")
        try:
            assert study(n_jobs=2, backend="ray") == study()
        finally:
            ray.shutdown()


def test_local_processes_give_the_same_numbers():
    assert study(n_jobs=2) == study()
    assert simulated(jobs=2) == simulated()


def test_results_carry_their_numbers():
    assert dict(run_tasks([lambda: "a", lambda: "b"], jobs=1, what="test")) == {0: "a", 1: "b"}


def test_an_engine_that_is_not_there_is_one_line():
    with pytest.raises(qm.ModelError, match="study: backend 'foo' cannot be used: Invalid backend"):
        study(backend="foo")
