"""Studies on engines that exist: local processes, Dask, Ray; the same numbers, whoever dies meanwhile."""

import gc
import os
import signal
import sys
import threading
import time
import warnings
from functools import partial
from pathlib import Path

import joblib
import pytest

import queuemodel as qm
from queuemodel import example_profile
from queuemodel.base.parallel import run_tasks
from queuemodel.scheduling import FIFO, EqualShare, JobKind, Nodes, Stream, run_all, sweep
from queuemodel.simulator import trace_runs

CI = os.environ.get("CI")
KIND = JobKind("image", curve={1: 2.0, 2: 3.8, 4: 6.9, 8: 11.0}, steps=20_000, requested_nodes=4)


def study(**engine):
    asked = {"loads": [0.3, 0.6], "nodes": Nodes(16), "replications": 3}
    return sweep(Stream([KIND], jobs=60, nodes=16), [EqualShare(), FIFO()], **asked, **engine).to_rows()


def simulated(**engine):
    runs = trace_runs(example_profile("alexnet-60"), workers=[1, 2], replications=2, steps=80, seed=3, **engine)
    return [[one.throughput for one in row] for row in runs]


@pytest.fixture
def dask():
    distributed = pytest.importorskip("distributed")
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "memory_limit": None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the engine's own
        with distributed.LocalCluster(processes=True, **settings) as cluster, distributed.Client(cluster) as client:
            yield client


@pytest.mark.engines
def test_dask_survives_a_killed_worker(dask):
    (address, first), ended = next(iter(dask.run(os.getpid).items())), threading.Event()

    def kill():
        while not (dask.processing().get(address) or ended.wait(0.01)):  # until it has a task
            pass
        os.kill(first, signal.SIGKILL)

    killing = threading.Thread(target=kill)
    killing.start()
    assert study(n_jobs=2, backend="dask") == study()
    ended.set()
    killing.join()
    dask.wait_for_workers(2, timeout=300)
    with joblib.parallel_config("dask"):
        assert simulated(n_jobs=2) == simulated()
    assert first not in dask.run(os.getpid).values()


@pytest.fixture(scope="module")
def ray():
    ray = pytest.importorskip("ray")
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))  # of its workers
        for _ in range(5 if CI else 2):  # Ray gives up where its servers take more than half a minute to start
            try:
                ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 * 2**20)
                break
            except Exception as error:
                said = str(error)
            ray.shutdown()
            gc.collect()  # what is left of those servers, whose end warns
        else:
            (pytest.fail if CI else pytest.skip)(f"Ray is installed, but does not start here: {said}")
        yield ray
        ray.shutdown()
        gc.collect()


def waits(number, gate):
    """Number and process; the first two tasks at once, others when the file ``gate`` is there."""
    while number > 1 and not gate.exists():
        time.sleep(0.05)
    return number, os.getpid()


def dies():
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.engines
def test_ray_survives_a_killed_worker(ray, tmp_path):
    gate = tmp_path / "open"
    results = run_tasks([partial(waits, number, gate) for number in range(8)], n_jobs=2, backend="ray", what="test")
    number, (same, process) = next(results)  # as they end: a batch would hand over nothing yet
    os.kill(process, signal.SIGKILL)  # that has the next task by now
    gate.touch()
    others = dict(results)
    assert {number: same} | {n: own for n, (own, _) in others.items()} == {n: n for n in range(8)}
    assert process not in {by for own, by in others.values() if own > 1}
    assert study(n_jobs=2, backend="ray") == study()


def test_local_processes_agree():
    """One that is killed is one line."""
    assert dict(run_tasks([lambda: "a", lambda: "b"], n_jobs=1, what="test")) == {0: "a", 1: "b"}
    assert study(n_jobs=2) == study()
    assert simulated(n_jobs=2) == simulated()
    with pytest.raises(qm.QueueModelError, match="study: a process ended before its task"):
        run_all([dies, dies], n_jobs=2)
