"""Against LINE's functions (PyPI line-solver), on the same random networks."""

import contextlib
import io
import warnings

import numpy as np
import pytest

from queuemodel import queueing


@pytest.fixture(scope="module")
def pfqn_mva():
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            from line_solver.api.pfqn.mva import pfqn_mva
        except Exception:
            pytest.skip("LINE (line-solver) is not installed")
    return pfqn_mva


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(12))
def test_multi_class_throughputs_and_queue_lengths(pfqn_mva, seed):
    rng = np.random.default_rng(seed)
    C, K = int(rng.integers(1, 4)), int(rng.integers(1, 5))
    D, N, Z = 10 ** rng.uniform(-2, 1, (K, C)), rng.integers(1, 8, C), rng.choice([0.0, 1.0, 10.0], C)
    ours = queueing.solve(queueing.Network.from_demands(D, population=N, think_time=Z))
    X, _, Q, *_ = pfqn_mva(D, N.astype(float), Z)
    np.testing.assert_allclose(ours.class_throughput, np.ravel(X), rtol=1e-9)
    np.testing.assert_allclose(ours.class_queue_length, np.reshape(Q, (K, C)), rtol=1e-8, atol=1e-12)
    assert not np.allclose(ours.class_throughput * 1.02, np.ravel(X), rtol=1e-3)  # 2 % off would be noticed
