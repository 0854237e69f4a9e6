"""Which measurement to make next: is the recommended one worth more than any? Checked on the recorded series.

python -m validation.measuring
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from queuemodel import Profile, Throughput, fit
from queuemodel.measuring import Run, next_measurement
from queuemodel.traces import calibrate

from .published import cloud
from .series import read_measured, read_testbed, series_folders

#: Testbed series are judged at so many workers, from runs of fewer; cloud series at more than these.
JUDGED, CLOUD_RUNS = 8, 4

#: Middles and ends of intervals, shape (3, judged).
Intervals = np.ndarray


@dataclass(frozen=True)
class Advice:
    """A series, what was predicted where it is judged after each run that there was to choose from, and the choice."""

    group: str
    name: str
    measured: np.ndarray
    before: Intervals
    after: dict[int, Intervals]
    recommended: int

    def error(self, intervals: Intervals) -> float:
        """Mean absolute relative error of their middles."""
        return float(np.abs(intervals[0] / self.measured - 1).mean())

    def compared(self, what: Callable[[Intervals], float]) -> tuple[float, float, float]:
        """Something of the intervals before, after the recommended run, and after a random one (expected)."""
        return what(self.before), what(self.after[self.recommended]), float(np.mean([*map(what, self.after.values())]))


def width(intervals: Intervals) -> float:
    """Mean width relative to the middle."""
    return float(((intervals[2] - intervals[1]) / intervals[0]).mean())


def advise_simulation(profile: Profile, points: Sequence[Throughput]) -> Advice:
    """One worker's traces, on a network that nobody tells, and one run of fewer workers than are asked about."""
    runs = [point for point in points if point.workers < JUDGED]
    (judged,) = (point for point in points if point.workers == JUDGED)
    told = {"congestion_control": "unknown"}
    chosen = next_measurement(profile, JUDGED, runs=[Run(point.workers) for point in runs], **told)
    found = calibrate(profile, [], workers=[JUDGED], runs=[(point.workers, None) for point in runs], **told)

    def intervals(measured: Sequence[Throughput]) -> Intervals:
        return found.given(measured).after.interval(0.9, [found.at_asked(JUDGED)])

    return Advice(
        "simulation, network unknown",
        profile.job.name,
        np.array([judged.steps_per_second]),
        intervals([]),
        {point.workers: intervals([point]) for point in runs},
        chosen.recommended.workers,
    )


def advise_network(
    group: str,
    name: str,
    data: Profile | list[Throughput],
    runs: Sequence[Throughput],
    judged: Sequence[Throughput],
) -> Advice:
    """A closed network fitted to what there is, and to one run more."""
    workers = [point.workers for point in judged]

    def intervals(measured: list[Throughput]) -> Intervals:
        model = fit(data, throughputs=measured) if isinstance(data, Profile) else fit([*data, *measured])
        curve = model.throughput(workers)
        return np.array([curve.steps_per_second, curve.lower, curve.upper])

    chosen = next_measurement(data, workers, runs=[Run(point.workers) for point in runs], method="mva")
    after = {point.workers: intervals([point]) for point in runs}
    measured = np.array([point.steps_per_second for point in judged])
    return Advice(group, name, measured, intervals([]), after, chosen.recommended.workers)


def testbed_points(folder: Path, servers: int) -> list[Throughput]:
    """What was measured of a series."""
    return [
        Throughput(workers=int(n), steps_per_second=float(x), parameter_servers=servers)
        for n, x in zip(*read_measured(folder), strict=True)
    ]


def cloud_advice(known: int) -> Iterator[Advice]:
    """Each cloud series, from its throughputs of the ``known`` smallest numbers of workers."""
    for job in cloud():
        runs, judged = job.points(job.nodes <= CLOUD_RUNS), job.points(job.nodes > CLOUD_RUNS)
        yield advise_network(f"cloud, from {known} throughput(s)", job.name, runs[:known], runs, judged)


def advice(profiles: Iterable[tuple[Path, Profile]]) -> list[Advice]:
    """Every series by every method."""
    found = []
    for folder, profile in profiles:
        points = testbed_points(folder, profile.cluster.parameter_servers)
        if JUDGED not in [point.workers for point in points]:
            continue
        *runs, judged = points
        found.append(advise_simulation(profile, points))
        found.append(advise_network("closed network", profile.job.name, profile, runs, [judged]))
    return sorted([*found, *cloud_advice(1), *cloud_advice(2)], key=lambda one: one.group)


SECTION = """## The next measurement

What `queuemodel next-measurement` recommends, followed. Testbed series are judged at eight workers, from one worker's
traces on a network that is not told, and a run of one, two or four workers; cloud series at five to eight, from one or
two throughputs and a run of one to four. *Random* is the mean over these runs. Widths are of 90 % intervals, relative
to what is predicted.

| series | recommended | width before | recommended | random | error before | recommended | random |
|---|---|---|---|---|---|---|---|
"""


def section(found: Sequence[Advice]) -> str:
    """Markdown: what following the recommendation is worth."""
    lines = []
    for group in dict.fromkeys(one.group for one in found):
        own = [one for one in found if one.group == group]
        rows = [(one.name, f"{one.recommended} workers", [one]) for one in own]
        for name, run, ones in [*rows, (f"**{group}**", "", own)]:
            widths = np.mean([one.compared(width) for one in ones], axis=0)
            errors = np.mean([one.compared(one.error) for one in ones], axis=0)
            told = " | ".join(f"{value:.1%}" for value in [*widths, *errors])
            lines.append(f"| {name} | {run} | {told} |")
    return SECTION + "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(section(advice((folder, read_testbed(folder)) for folder in series_folders())))
