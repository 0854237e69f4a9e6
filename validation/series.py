"""The measured series, and how each is predicted."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from queuemodel import Profile, ThroughputCurve, fit
from queuemodel.models import predict
from testbed.recordings import unpacked
from testbed.workload import FQ_CODEL, POLICER

HERE = Path(__file__).parent
TESTBEDS = tuple(HERE / "data" / "testbed" / name for name in ("given", "parameter_servers"))

#: Where a series says how it was run, and what makes it another kind: the value of the usual kind.
SETTINGS = ("job.json", "workload.json")
UNUSUAL = {"mode": "async", "slow_worker": None, "slow_link_mbit": None, "order": None}

#: What a workload says of the way of training and of other traffic, not of the job.
WAY = {"name", "note", "mode", "awaited", "staleness_bound", "other_traffic", "other_traffic_hosts"}

#: Milliseconds that a packet waits at a full link of the testbed where no workload says otherwise.
USUAL_BUFFER = 12.0


@dataclass(frozen=True)
class Comparison:
    """One series: what was measured where it counts, and what was predicted there.

    A number of workers that was measured again stands as often in `workers`; its error is that of the mean, and
    `first_measured` holds what each was first, unless that comes first anyway.
    """

    name: str
    method: str
    workers: np.ndarray
    measured: np.ndarray
    curve: ThroughputCurve
    first_measured: np.ndarray | None = None

    @property
    def predicted(self) -> np.ndarray:
        """Steps per second at `workers`."""
        return np.array([self.curve.at(int(n)) for n in self.workers])

    @property
    def counts(self) -> np.ndarray:
        """Numbers of workers, each once."""
        return np.unique(self.workers)

    @property
    def first(self) -> np.ndarray:
        """Each of `counts` as it was measured first."""
        return (
            self.measured[np.searchsorted(self.workers, self.counts)]
            if self.first_measured is None
            else self.first_measured
        )

    @property
    def errors(self) -> np.ndarray:
        """Relative errors at `counts`."""
        means = np.array([self.measured[self.workers == n].mean() for n in self.counts])
        return self.predicted[np.searchsorted(self.workers, self.counts)] / means - 1

    @property
    def error(self) -> float:
        """Mean absolute relative error."""
        return float(np.abs(self.errors).mean())

    @property
    def inside(self) -> np.ndarray:
        """Share of the measurements inside the interval at each of `counts`."""
        at = np.searchsorted(self.curve.workers, self.workers)
        inside = (self.curve.lower[at] <= self.measured) & (self.measured <= self.curve.upper[at])
        return np.array([inside[self.workers == n].mean() for n in self.counts])

    @property
    def coverage(self) -> float:
        """Share of the measurements inside the interval, each of `counts` counting as one."""
        return float(self.inside.mean())

    @property
    def weights(self) -> np.ndarray:
        """Of the measurements: as many as of a number of workers share one."""
        _, at, windows = np.unique(self.workers, return_inverse=True, return_counts=True)
        return 1.0 / windows[at]


def series_folders(*, usual: bool = True) -> list[Path]:
    """Folders with traces of one worker and measured throughputs.

    The usual ones are asynchronous, on equal machines; the others synchronous, with a slow worker or link, or ordered.
    """
    return [folder for folder in _measured() if (folder / "trace").exists() and bool(_unusual(folder)) != usual]


def untraced_folders() -> list[Path]:
    """Folders with measured throughputs of jobs whose trace another series has."""
    return [folder for folder in _measured() if not (folder / "trace").exists()]


def folder_of_trace(folder: Path) -> Path:
    """The series whose one worker is that of an untraced one: the same job on the same machines, trained otherwise."""
    places = [*_measured(), *sorted(folder.parent.iterdir())]
    jobs = {other: _job(other) for other in places if (other / "trace").exists() if (other / SETTINGS[1]).exists()}
    return next(other for other, job in jobs.items() if job == _job(folder))


def _job(folder: Path) -> dict[str, Any]:
    """What is trained, on which machines."""
    workload = json.loads((folder / SETTINGS[1]).read_text())
    return {name: value for name, value in workload.items() if name not in WAY}


def _measured() -> list[Path]:
    """Folders with measured throughputs."""
    return [folder for place in TESTBEDS for folder in sorted(unpacked(place).iterdir())]


def _unusual(folder: Path) -> dict[str, Any]:
    """What sets a series apart from the usual ones."""
    files = [json.loads((folder / name).read_text()) for name in SETTINGS if (folder / name).exists()]
    settings = {name: value for file in files for name, value in file.items() if name in UNUSUAL}
    return {name: value for name, value in settings.items() if value != UNUSUAL[name]}


def kind_of(folder: Path) -> str:
    """The kind of network that a series was measured on, in words: what is left out together."""
    told, servers = network(folder), json.loads((folder / "job.json").read_text())["parameter_servers"]
    words = [f"{told['congestion_control']}, {1e3 * told['buffer']:g} ms", f"{servers} servers" if servers > 1 else ""]
    return ", ".join(filter(None, [*words, *(_word(*item) for item in _unusual(folder).items())]))


def _word(name: str, value: Any) -> str:
    """What sets a series apart, in words."""
    return (
        str(value) if name == "mode" else "ordered" if name == "order" else name.replace("_mbit", "").replace("_", " ")
    )


def read_measured(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Workers and steps per second of a testbed series, each number of workers as it was measured first."""
    rows = [row for row in json.loads((folder / "measured.json").read_text()) if row.get("counts", True)]
    rows.sort(key=lambda row: row["workers"])
    return np.array([row["workers"] for row in rows]), np.array([row["steps_per_s"] for row in rows])


def read_windows(folder: Path) -> list[dict[str, Any]]:
    """Every window that measured a testbed series, or one of the same name elsewhere, again too; by workers."""
    places = dict.fromkeys((*map(unpacked, TESTBEDS), folder.parent))
    files = [place / folder.name / name for place in places for name in ("measured.json", "again.json")]
    rows = [row for file in files if file.exists() for row in json.loads(file.read_text())]
    return sorted((row for row in rows if row.get("counts", True)), key=lambda row: row["workers"])


def every_window(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Workers and steps per second of every window."""
    rows = read_windows(folder)
    return np.array([row["workers"] for row in rows]), np.array([row["steps_per_s"] for row in rows])


def compare_testbed(folder: Path, profile: Profile, method: str) -> Comparison:
    """Predict a testbed series from its one-worker traces alone."""
    workers, measured = every_window(folder)
    curve = predict(profile, workers=np.unique(workers).tolist(), method=method)
    name = folder.name if folder.parent == unpacked(TESTBEDS[0]) else f"{folder.name} (ours)"
    return Comparison(name, method, workers, measured, curve, read_measured(folder)[1])


def machines(folder: Path, profile: Profile, workers: int) -> dict[str, Any]:
    """What is known of a series' unequal machines or its barrier: arguments of `queuemodel.simulator.trace_runs`."""
    from queuemodel.simulator import estimate_links

    settings, others = _unusual(folder), [1.0] * (workers - 2)  # worker 1, the second one, is the slow one
    told: dict[str, Any] = {"synchronization": {"sync": "sync-ps"}.get(settings.get("mode", ""), "async-ps")}
    if workers > 1 and "slow_worker" in settings:
        told["worker_speeds"] = [1.0, 1.0 / settings["slow_worker"], *others]
    if workers > 1 and "slow_link_mbit" in settings:
        slower = settings["slow_link_mbit"] / json.loads((folder / "job.json").read_text())["bandwidth_mbit"]
        rate = estimate_links(profile).transmit.rate
        told["worker_bandwidth"] = [rate * share for share in (1.0, slower, *others)]
    return told


def compare_unusual(folder: Path, profile: Profile) -> Comparison:
    """Simulate a series from its one-worker traces, and from what is known of its unequal machines or its barrier."""
    from queuemodel.models import trace_throughput

    workers, measured = every_window(folder)
    counts = np.unique(workers).tolist()
    rows = [trace_throughput(profile, workers=[n], **machines(folder, profile, n))[0] for n in counts]
    X, lower, upper = np.array(rows).T
    knee = fit(profile).throughput([1]).saturation_workers
    curve = ThroughputCurve(
        np.array(counts), X, lower, upper, single=float(X[0]), saturation_workers=knee, method="trace"
    )
    return Comparison(f"{folder.name} (ours)", "trace", workers, measured, curve, read_measured(folder)[1])


def network(folder: Path) -> dict[str, Any]:
    """TCP's congestion control and the links' buffers, recorded beside what we measured (others: BBR and 12 ms).

    Under `fq_codel` and behind a policer nobody waits behind others: no buffer. Policers are told their bandwidth.
    """
    links, workload = folder / "links.json", folder / "workload.json"
    runs = json.loads(links.read_text()).values() if links.exists() else []
    (algorithm,) = {name for run in runs for server in run.values() for name in server["tcp"]["algorithm"]} or {"bbr"}
    told = json.loads(workload.read_text()) if workload.exists() else {}
    buffer = 0.0 if told.get("queue") in (FQ_CODEL, POLICER) else told.get("buffer_ms", USUAL_BUFFER) / 1e3
    bandwidth = {"bandwidth": told["bandwidth_mbit"] * 125_000} if told.get("queue") == POLICER else {}
    return {"congestion_control": algorithm, "buffer": buffer, **bandwidth}


def read_testbed(folder: Path) -> Profile:
    """The profile of a series' traces, through the command line's own path: import, save, load."""
    from queuemodel.adapters import read_tensorflow

    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "profile.json"
        read_tensorflow(folder / "trace", batch_size=1, name=folder.name, **network(folder)).save(path)
        return Profile.load(path)
