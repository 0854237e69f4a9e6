"""What a perfect model would err by: a measurement is a window of wandering phases, a trace a sample of few steps.

python -m validation.noise_floor
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from queuemodel import Profile
from queuemodel.models.simulation.model import sampled_share, sampling_error
from queuemodel.profile.bandwidth import transports_of
from queuemodel.simulator.result import SimulatedRun
from queuemodel.simulator.simulate import trace_runs

from .series import machines, read_testbed, read_windows, series_folders

#: Simulated measurements of each number of workers, by each way of sharing links.
REPLICATIONS = 16

#: Steps simulated over those measured: a model may be that much faster, and its run must still last as long.
MARGIN = 1.5

#: Share of a run that is not counted, when workers fall out of step with each other.
SETTLING = 0.25

#: Mean absolute value of a standard normal variable.
MEAN_ABSOLUTE = (2 / np.pi) ** 0.5


@dataclass(frozen=True)
class NoiseFloor:
    """What one series' measurements are worth, by number of workers (n,).

    Attributes
    ----------
    name : str
    counts : ndarray
        Numbers of workers.
    measured : tuple of ndarray
        Steps per second in every window.
    window, sampling : ndarray
        Relative standard errors of one window, and of a prediction from so few recorded steps.
    """

    name: str
    counts: np.ndarray
    measured: tuple[np.ndarray, ...]
    window: np.ndarray
    sampling: np.ndarray

    @property
    def errors(self) -> np.ndarray:
        """Expected absolute relative error of a perfect model, against the mean of what was measured again."""
        again = np.array([len(windows) for windows in self.measured])
        return np.asarray(MEAN_ABSOLUTE * np.hypot(self.window / again**0.5, self.sampling))

    def apart(self) -> list[tuple[int, float, float]]:
        """
        Pairs of windows measured again: workers, and by how much one of them errs, measured and computed.

        That is the absolute difference of their logarithms over the root of two, whose mean is that error's.
        """
        return [
            (int(n), abs(float(np.log(one / other))) / 2**0.5, MEAN_ABSOLUTE * float(spread))
            for n, windows, spread in zip(self.counts, self.measured, self.window, strict=True)
            for one, other in combinations(windows, 2)
        ]


def window_error(runs: Sequence[SimulatedRun], seconds: float) -> float:
    """Relative standard deviation of the throughput of windows of so many seconds, as the testbed measures.

    Each begins when a third of its length has passed. Raises ValueError where a run is too short for it.
    """
    counted = []
    for run in runs:
        times = np.concatenate([[0.0], run.times])
        begin, end = SETTLING / (1 - SETTLING) * seconds, seconds / (1 - SETTLING)
        if times[-1] < end:
            raise ValueError(f"a run lasts {times[-1]:.0f} s, its window ends after {end:.0f} s")
        steps = np.concatenate([[0.0], np.cumsum(run.throughputs * np.diff(times))])
        counted.append(np.diff(np.interp([begin, end], times, steps)))
    return float(np.std(counted, ddof=1) / np.mean(counted))


def noise_floor(folder: Path, profile: Profile) -> NoiseFloor:
    """What the measurements of a testbed series are worth, by simulations of them.

    Where links are shared in several ways, errors are those of each by itself: what lies between them is the model's.
    """
    rows = read_windows(folder)
    counts = sorted({row["workers"] for row in rows})
    measured = tuple(np.array([row["steps_per_s"] for row in rows if row["workers"] == n]) for n in counts)
    window, sampling = [], []
    for n, speeds in zip(counts, measured, strict=True):
        seconds = np.mean([row["window_s"] for row in rows if row["workers"] == n and "window_s" in row])
        told = machines(folder, profile, n)
        (kind, *_), barrier = transports_of(profile), told["synchronization"] == "sync-ps"
        ways = len(kind.mechanisms(barrier=barrier))
        steps = int(MARGIN * seconds / (1 - SETTLING) * speeds.max() * REPLICATIONS * ways)
        (runs,) = trace_runs(profile, workers=n, replications=REPLICATIONS * ways, steps=steps, **told)
        window.append(np.sqrt(np.mean([window_error(runs[way::ways], seconds) ** 2 for way in range(ways)])))
        sampling.append(sampling_error(profile) * sampled_share(profile, runs))
    return NoiseFloor(folder.name, np.array(counts), measured, np.array(window), np.array(sampling))


SECTION = """## What measuring errs by

A perfect model would not err by nothing: a measurement is a window of half a minute to one and a half, in which
workers' phases wander, and a trace a sample of twelve steps. *Floor*, in the tables above, is what it would err by,
computed: simulations of each measurement, as long and with as much time to settle, differ from each other by so much,
and twelve steps from others. Where a series was measured again, with other phases and computation times in new
processes (`again.json`), all windows count: errors are those of their mean. With two workers of
`vgg16-60` that were 1.68 and 1.38 steps/s: the first alone was predicted 10 % too low. Under BBR two workers of
`alexnet-60`, and those that fetch in order, were measured for four to six minutes besides, in parts as long as windows
usually are (`part`): they were chosen because they were predicted worst, so that errors fall by the choice, too. And
half of what two windows of the same series differ by (as squares go) is what one of them errs by, measured (pairs share
windows, so that ± is at least that):

| workers | pairs of windows | measured | computed |
|---|---|---|---|
"""


def noise_floor_section(floors: Iterable[NoiseFloor]) -> str:
    """Markdown: what one window errs by, measured and computed, by number of workers."""
    series = {one.name: one for one in floors}  # those of the same name have the same windows
    pairs = np.array([pair for one in series.values() for pair in one.apart()])
    lines = []
    for name, own in [*((f"{n:.0f}", pairs[:, 0] == n) for n in np.unique(pairs[:, 0])), ("**all**", pairs[:, 0] > 0)]:
        measured, computed = pairs[own, 1:].T
        error = f" ± {100 * measured.std(ddof=1) / len(measured) ** 0.5:.1f}" if len(measured) > 1 else ""
        lines.append(f"| {name} | {len(measured)} | {100 * measured.mean():.1f}{error} % | {computed.mean():.1%} |")
    return SECTION + "\n".join(lines) + "\n"


if __name__ == "__main__":
    found = {f: noise_floor(f, read_testbed(f)) for usual in (True, False) for f in series_folders(usual=usual)}
    for folder, one in found.items():
        print(f"{folder.name:32}", *[f"{n}: {100 * e:.1f} %" for n, e in zip(one.counts, one.errors, strict=True)])
    print(noise_floor_section(found.values()))
