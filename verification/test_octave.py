"""Against GNU Octave's queueing package (Debian octave-queueing), on the same random networks."""

import shutil
import subprocess

import numpy as np
import pytest

from queuemodel import queueing


def octave(lines):
    """What Octave prints, as numbers, one row per line."""
    if shutil.which("octave") is None:
        pytest.skip("GNU Octave is not installed")
    program = "\n".join(["pkg load queueing;", "format long;", *lines])
    run = subprocess.run(["octave", "-qf", "--eval", program], capture_output=True, text=True, timeout=120, check=False)
    if "could not be found" in run.stderr or "not installed" in run.stderr:
        pytest.skip("Octave's queueing package is not installed")
    assert run.returncode == 0, run.stderr
    return [np.array(line.split(), float) for line in run.stdout.splitlines() if line.strip()]


def matrix(values):
    rows = np.atleast_2d(values)
    return "[" + "; ".join(" ".join(repr(float(x)) for x in row) for row in rows) + "]"


def random_networks(count, servers):
    rng = np.random.default_rng(11)
    for _ in range(count):
        K = int(rng.integers(1, 5))
        m = rng.integers(1, 4, K) if servers else np.ones(K, int)
        yield 10 ** rng.uniform(-2, 1, K), m, int(rng.integers(1, 8)), float(rng.choice([0.0, 2.0]))


@pytest.mark.parametrize("servers", [False, True])
def test_single_class(servers):
    networks = list(random_networks(12, servers))
    lines = []
    for D, m, N, Z in networks:
        lines.append(f"[U R Q X] = qncsmva({N}, {matrix(D)}, ones(1, {len(D)}), {matrix(m)}, {Z!r});")
        lines.append("printf('%.15g ', X(1), Q); printf('\\n');")
    for (D, m, N, Z), row in zip(networks, octave(lines), strict=True):
        ours = queueing.solve(queueing.Network.from_demands(D, servers=m.tolist(), think_time=Z), population=N)
        np.testing.assert_allclose([ours.throughput, *ours.queue_length], row, rtol=1e-8, atol=1e-9)


def test_several_classes():
    rng = np.random.default_rng(12)
    networks, lines = [], []
    for _ in range(8):
        C, K = 2, int(rng.integers(1, 4))
        D, N, Z = 10 ** rng.uniform(-2, 1, (K, C)), rng.integers(1, 6, C), rng.choice([0.0, 3.0], C)
        networks.append((D, N, Z))
        lines.append(
            f"[U R Q X] = qncmmva({matrix(N)}, {matrix(D.T)}, ones({C}, {K}), ones(1, {K}), {matrix(Z)});"
            "printf('%.15g ', X(:, 1), Q'); printf('\\n');"
        )
    for (D, N, Z), row in zip(networks, octave(lines), strict=True):
        ours = queueing.solve(queueing.Network.from_demands(D, population=N, think_time=Z))
        np.testing.assert_allclose([*ours.class_throughput, *ours.class_queue_length.T.ravel()], row, rtol=1e-8)


def test_octave_loses_digits_with_many_customers_and_servers():
    """One repairman shop: 10 servers of 0.05 s, Z = 1, N = 200; 50-digit arithmetic gives 185.0633634539361."""
    (row,) = octave(["[U R Q X] = qncsmva(200, 0.05, 1, 10, 1); printf('%.15g\\n', X(1));"])
    ours = queueing.solve(queueing.Network.from_demands([0.05], servers=10, think_time=1.0), population=200).throughput
    assert ours == pytest.approx(185.0633634539361, rel=1e-12)
    assert abs(row[0] / ours - 1) > 1e-3  # when this fails, the peer has been repaired: say so in README.md


def test_balanced_job_bounds():
    networks = [(D, N, Z) for D, _, N, Z in random_networks(10, False) if N > 1]
    lines = []
    for D, N, Z in networks:
        ones = f"ones(1, {len(D)})"
        lines.append(f"[l u] = qncsbsb({N}, {matrix(D)}, {ones}, {ones}, {Z!r}); printf('%.15g %.15g\\n', l, u);")
    for (D, N, Z), row in zip(networks, octave(lines), strict=True):
        bounds = queueing.bounds(queueing.Network.from_demands(D, think_time=Z), N, kind="balanced-job")
        np.testing.assert_allclose([bounds.lower, bounds.upper], row, rtol=1e-9)
