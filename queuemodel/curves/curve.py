"""Throughput against node count: the value that every prediction ends in, and that plans and schedules start from."""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Unpack

import msgspec
import numpy as np

from ..base.checks import one_line, require_count, require_number
from ..base.errors import DataError, ModelError, QueueModelError
from ..base.estimates import Estimate
from ..base.results import Note, Result, counted, finite, joined, percent, ranked, rows_of, same
from ..queueing.json_format import require_format
from ..report import report_page
from .figures import plot_throughput
from .goals import Shown
from .page import curve_data
from .prediction import next_measurement
from .ratio import Ratio, ratio_of

if TYPE_CHECKING:
    import pandas

    from ..profile.profile import Profile

MOST_CURVE_WORKERS = 10_000
FORMAT, FORMAT_VERSION = "queuemodel-curve", 1


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Breakdown:
    """Times of a step by station at n numbers of workers, and the asymptotes; see `ThroughputCurve`."""

    stations: tuple[str, ...] = ()
    utilization: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    residence_time: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    think_time: np.ndarray = field(default_factory=lambda: np.empty(0))
    bound_lower: np.ndarray = field(default_factory=lambda: np.empty(0))
    bound_upper: np.ndarray = field(default_factory=lambda: np.empty(0))
    saturation_workers: float = math.inf
    bottleneck: str = ""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Basis:
    """What a prediction is of, and what it rests on; see `ThroughputCurve`."""

    parameter_servers: int = 0
    workers_per_node: int = 1
    profiled_workers: int = 0
    measured: tuple[tuple[int, float], ...] = ()
    method: str = ""
    assumption: str = ""
    remarks: tuple[Note, ...] = ()
    synchronous: bool = False
    steps_per_round: np.ndarray = field(default_factory=lambda: np.empty(0))


@dataclass(frozen=True, eq=False, repr=False)
class ThroughputCurve(Breakdown, Basis, Result):
    """Throughput of one job on different numbers of workers (arrays have shape (n,) unless specified).

    ``curve[8]`` is that of 8 workers with its interval, ``curve / other`` the ratio to another curve. Jobs that train
    in rounds (`in_rounds`) count iterations, on servers or without; asynchronous ones count steps of all workers.

    Attributes
    ----------
    workers : ndarray of int
        Increasing.
    steps_per_second : ndarray
        Steps of all workers together: of asynchronous ones the updates; of synchronous ones the iterations, times the
        workers.
    lower, upper : ndarray
        Interval around `steps_per_second` with probability `confidence`.
    single : float
        Steps per second of one worker, or per worker of the base of speedup and efficiency.
    base_workers : int
        The base of speedup and efficiency: one worker, or the smallest measured group of a table.
    batch_size : int
        Work per step, in ``unit``.
    unit : str
        Of the work: ``"examples"``, ``"tokens"``, ...; "" where no batch size is known, so that it is steps.
    sequence_length : int or None
        Tokens of an example, where they are counted beside.
    parameter_servers : int
    workers_per_node : int
        Workers that share a machine.
    dataset_size : int or None
        Examples per epoch, when known.
    stations : tuple of str
        Stations of the network, K names; empty when the method has none.
    utilization, residence_time : ndarray, shape (n, K)
        Busy share of each station, and seconds of a step spent there.
    think_time : ndarray
        Seconds of a step in which the worker computes without waiting for any station.
    bound_lower, bound_upper : ndarray
        Asymptotic bounds on throughput; NaN when the method has none.
    saturation_workers : float
        Where the asymptotes cross; more workers than this mostly wait.
    bottleneck : str
        The station that saturates first; empty for none.
    profiled_workers : int
        Largest number of workers measured on such machines, above which the curve extrapolates (0: all of it).
    measured : tuple of (workers, steps per second)
        What was measured, for plots and tables.
    method, assumption : str
        How it was predicted, and what is assumed about how the job trains.
    remarks : tuple of Note
        What limits the answer.
    synchronous : bool
        Whether all workers make their steps together, in rounds.
    steps_per_round : ndarray
        Steps that count in a round (and in `steps_per_second`), where not one of each worker; else empty.
    model : ClosedNetworkModel, AllReduceModel, ScalingModel or None
        What was fitted: its parameters, for reports.
    """

    workers: np.ndarray
    steps_per_second: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    _: KW_ONLY
    single: float
    base_workers: int = 1
    batch_size: int = 1
    unit: str = "examples"
    sequence_length: int | None = None
    parameter_servers: int = 1
    dataset_size: int | None = None
    confidence: float = 0.9
    profiled_workers: int = 1
    model: Any = field(default=None, compare=False)
    _digits = 3
    plot = plot_throughput

    @property
    def nodes(self) -> np.ndarray:
        """Machines: those of the workers, and the parameter servers."""
        return -(-self.workers // self.workers_per_node) + self.parameter_servers

    @property
    def examples_per_second(self) -> np.ndarray:
        """Steps per second times the mini-batch size, in ``unit``."""
        return self.steps_per_second * self.batch_size

    @property
    def work(self) -> dict[str, int]:
        """Work of a step by its units: ``unit`` and, of examples of known length, tokens; none where it is unknown."""
        tokens = {"tokens": self.batch_size * self.sequence_length} if self.sequence_length else {}
        return ({self.unit: self.batch_size} | tokens) if self.unit else {}

    @property
    def iterations_per_second(self) -> np.ndarray:
        """Synchronous steps of the whole group, or updates of several steps; NaN for workers on their own."""
        return self.steps_per_second / self._steps_in_one if self.in_rounds else np.full(len(self.workers), np.nan)

    @property
    def in_rounds(self) -> bool:
        """Whether steps of several workers make an iteration, which is then counted on any machines."""
        return self.synchronous or len(self.steps_per_round) > 0

    def __eq__(self, other: object) -> bool:
        """Whether all is equal but for the model."""
        return same(self, other)

    def __hash__(self) -> int:
        return hash((self.workers.tobytes(), self.steps_per_second.tobytes()))

    __iter__ = None  # not by numbers of workers from 0 on

    def __getitem__(self, workers: int) -> Estimate:
        """Iterations per second, or else steps of all workers, at one of `workers`, with the interval."""
        at, rates = self._index_of(workers), (self.steps_per_second, self.lower, self.upper)
        value, lower, upper = (float((x / self._steps_in_one)[at]) for x in rates)
        return Estimate(value, lower, upper, f"{self._counts}/s", self.confidence)

    def __truediv__(self, other: ThroughputCurve) -> Ratio:
        """Ratio of examples per second to those of another curve (`Ratio`)."""
        return ratio_of(self, other) if isinstance(other, ThroughputCurve) else NotImplemented

    @property
    def _counts(self) -> str:
        """What rows, texts and figures count per second: iterations, else steps of all workers."""
        return "iterations" if self.in_rounds else "steps"

    @property
    def _steps_in_one(self) -> np.ndarray:
        """Steps of all workers (n,) in one of what the curve `_counts`."""
        each = self.steps_per_round if len(self.steps_per_round) else self.workers
        return each if self.in_rounds else np.ones(len(self.workers))

    @property
    def base(self) -> str:
        """The base of speedup and efficiency in words, where it is not one worker."""
        return "" if self.base_workers == 1 else self._sized(self.base_workers)[0]

    def _sized(self, workers: int) -> tuple[str, str]:
        """A number of workers in words: whole nodes of several, or else GPUs or workers; and GPUs of such nodes."""
        nodes, rest = divmod(workers, self.workers_per_node)
        gpus = counted(workers, "GPU" if self.workers_per_node > 1 else "worker")
        return (gpus, "") if rest or self.workers_per_node == 1 else (counted(nodes, "node"), f" ({gpus})")

    @property
    def speedup(self) -> np.ndarray:
        """X(N) / X(b) over the base b."""
        return self.steps_per_second / (self.single * self.base_workers)

    @property
    def efficiency(self) -> np.ndarray:
        """X(N) b / (N X(b)), 1 at the base b: of one worker, the share of the workers' time not lost to waiting."""
        return self._efficiency_of(self.steps_per_second)

    def _efficiency_of(self, steps_per_second: np.ndarray) -> np.ndarray:
        """Efficiency of other throughputs (n,), as the interval's: 1 of the base, and at most the upper bound's."""
        most = np.fmax(self.bound_upper, self.steps_per_second) if self.bound_upper.size else np.inf
        share = np.minimum(steps_per_second, most) / (self.workers * self.single)
        return np.where(self.workers == self.base_workers, 1.0, share)

    @property
    def marginal_speedup(self) -> np.ndarray:
        """Throughput that each worker adds to the next smaller number of `workers` (to none, for the first).

        In that of one worker, or of each worker of the base.
        """
        return np.diff(self.steps_per_second / self.single, prepend=0.0) / np.diff(self.workers, prepend=0)

    def epoch_time(self, *, dataset_size: int | None = None) -> np.ndarray:
        """Seconds per epoch of ``dataset_size`` examples (by default the profile's)."""
        size = self.dataset_size if dataset_size is None else dataset_size
        if size is None:
            raise ModelError("epoch_time: dataset_size is not in the profile; give it, in examples per epoch")
        require_count(size, "epoch_time: dataset_size", most=2**62)
        return size / self.examples_per_second

    def at(self, workers: int) -> float:
        """Steps per second of all workers at one of `workers`."""
        return float(self.steps_per_second[self._index_of(workers)])

    def _index_of(self, workers: int) -> int:
        (index,) = np.nonzero(self.workers == workers)
        if len(index) == 0:
            known = f"{self.workers[0]}..{self.workers[-1]}"
            listed = known if len(self.workers) > 4 else ", ".join(map(str, self.workers))
            raise ModelError(f"curve: workers must be one of {listed}, got {workers!r}")
        return int(index[0])

    def faster(self, factor: float) -> ThroughputCurve:
        """The same curve when everything, computation and communication, takes ``1 / factor`` of its time."""
        require_number(factor, "faster: factor", positive=True)
        rates = ("steps_per_second", "lower", "upper", "single", "bound_lower", "bound_upper")
        scaled: dict[str, Any] = {name: getattr(self, name) * factor for name in rates}
        scaled |= {name: getattr(self, name) / factor for name in ("residence_time", "think_time")}
        return replace(self, **scaled, model=None)

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per number of workers: iterations per second, or else steps of all of them."""
        per, several = self._steps_in_one, self.workers_per_node > 1
        columns = {"nodes": self.nodes, "gpus": self.workers} if several else {"workers": self.workers}
        columns[f"{self._counts}_per_second"] = self.steps_per_second / per
        columns |= {"lower": self.lower / per, "upper": self.upper / per}
        columns |= {f"{unit}_per_second": self.steps_per_second * amount for unit, amount in self.work.items()}
        columns |= {"speedup": self.speedup, "efficiency": self.efficiency}
        if self.measured:
            steps = dict(zip(self.workers.tolist(), per.tolist(), strict=True))
            measured = {n: x / steps[n] for n, x in self.measured if n in steps}
            columns["measured"] = np.array([measured.get(n) for n in steps], dtype=object)
        utilization = zip(self.stations, self.utilization.T, strict=True)
        return rows_of(columns | {f"utilization_{name}": busy for name, busy in utilization})

    def to_frame(self) -> pandas.DataFrame:
        """The rows by number of nodes if all are different, else of workers; ``attrs``: units and confidence."""
        frame = super().to_frame()
        frame.attrs["confidence"] = self.confidence
        size = "nodes" if "nodes" in frame and frame["nodes"].is_unique else "gpus" if "nodes" in frame else "workers"
        return frame.set_index(size)

    def _units(self) -> dict[str, str]:
        rate = f"{self._counts}/s"
        rates = {f"{name}_per_second": f"{name}/s" for name in ("steps", "iterations", *self.work)}
        return rates | dict.fromkeys(("lower", "upper", "measured"), rate)

    def to_dict(self) -> dict[str, Any]:
        """Plain values: lists over `workers`, and fields of the whole curve; `load` reads it."""
        iterations = {"": self.steps_per_second, "_low": self.lower, "_high": self.upper} if self.in_rounds else {}
        rates = {f"iterations_per_second{end}": x / self._steps_in_one for end, x in iterations.items()}
        rates |= {"steps_per_second": self.steps_per_second, "lower": self.lower, "upper": self.upper}
        if self.unit:
            rates["examples_per_second"] = self.examples_per_second
        if self.sequence_length:
            rates["tokens_per_second"] = self.steps_per_second * self.work["tokens"]
        rates |= {name: getattr(self, name) for name in ("speedup", "efficiency", "nodes")}
        return {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "method": self.method,
            "workers": self.workers.tolist(),
            **{name: values.tolist() for name, values in rates.items()},
            "utilization": dict(zip(self.stations, self.utilization.T.tolist(), strict=True)),
            "residence_time": dict(zip(self.stations, self.residence_time.T.tolist(), strict=True)),
            **{name: [*map(finite, getattr(self, name).tolist())] for name in LISTS},
            **{name: getattr(self, name) for name in PLAIN},
            **{name: getattr(self, name) or None for name in ("bottleneck", "unit", "sequence_length")},
            "batch_size": self.batch_size if self.unit else None,
            "saturation_workers": finite(self.saturation_workers),
            "note": "; ".join(filter(None, [self.assumption, self.note])),
            "remarks": [list(note) for note in self.remarks],
        }  # fmt: skip

    @classmethod
    def from_json(cls, text: str | bytes, *, where: str = "curve JSON") -> ThroughputCurve:
        """The curve whose `to_json` this is, without its model; raises `DataError` in one line that names ``where``."""

        def array(kind: type, value: Any) -> Any:
            if kind is not np.ndarray:
                raise NotImplementedError
            columns = [*value.values()] if isinstance(value, dict) else [value]
            numbers = np.array([[math.nan if x is None else x for x in one] for one in columns])
            return numbers[0] if isinstance(value, list) else numbers.T if columns else np.empty((0, 0))

        try:
            found = {name: value for name, value in json.loads(text).items() if value is not None}
            require_format(found.pop("format"), found.pop("version"), FORMAT, FORMAT_VERSION)
            found |= {"unit": found.get("unit", ""), "stations": [*found["utilization"]]}
            curve = msgspec.convert(found, cls, dec_hook=array)
            n = len(require_workers(curve.workers.tolist()))
            lengths = {len(x) for x in vars(curve).values() if isinstance(x, np.ndarray)}
            if {*map(len, (curve.steps_per_second, curve.lower, curve.upper))} != {n} or not lengths <= {0, n}:
                raise ValueError(f"lists must be of one length, that of workers ({n})")
        except (ValueError, TypeError, KeyError, AttributeError, QueueModelError) as error:
            raise DataError(f"{where}: not a curve: {one_line(error)}") from None
        return curve

    def report(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        what_ifs: ThroughputCurve | None = None,
        profile: Profile | None = None,
        name: str = "",
        progress: bool = False,
        **questions: Unpack[Shown],
    ) -> str:
        """The text of one self-contained HTML file that shows the curve and answers what-ifs (docs/how-to/report).

        The page holds the curves of all combinations of what-ifs, which are computed here, within 1 %. A simulated
        curve takes too long for that: its page answers questions of time and cost alone, unless ``what_ifs`` are given.

        Parameters
        ----------
        path : path, optional
            Where to write it too (.html), whole or not at all.
        what_ifs : ThroughputCurve, optional
            The same question by a model that answers at once (``method="mva"``): what-ifs then change this curve by
            the factors by which they change that one (approximate; the page says so).
        profile : Profile, optional
            Its first step with operations is drawn.
        name : str
            Of the job, in the title; by default the profile's.
        progress : bool
            Show a progress bar on standard error.
        **questions
            Initial values: ``workers``, ``epochs`` (or ``steps``, ``examples``, ``tokens``), ``dataset_size``,
            ``deadline``, ``price_per_node_hour``, ``currency``, ``budget`` and ``min_efficiency``, as of `plan`.

        Raises
        ------
        ModelError
            For a question that is out of range, or a curve too long for a page.
        DataError
            When it cannot be written.

        Examples
        --------
        >>> import queuemodel as qm
        >>> rows = {"nodes": [1, 2], "gpus_per_node": [8, 8], "step_time_ms": [250, 262]}
        >>> page = qm.predict(rows, batch_size=32, workers=[8, 16, 32]).report(epochs=3, dataset_size=10**6)
        >>> page.startswith("<!doctype html>")
        True
        """
        solved = self if what_ifs is None else what_ifs
        data = curve_data(self, solved, questions, profile=profile, name=name, progress=progress)
        return report_page("curve", data, path=path)

    def _shown_rows(self) -> list[dict[str, Any]]:
        """`to_rows`, with the bottleneck's utilization only and the base of speedup: what fits."""
        others = {f"utilization_{name}" for name in self.stations if name != self.bottleneck}
        headers = {"gpus": "GPUs"} | ({"speedup": f"speedup over {self.base}"} if self.base else {})
        return [
            {headers.get(name, name.replace("per_second", "/s")): x for name, x in row.items() if name not in others}
            for row in self.to_rows()
        ]

    def answer(self) -> str:
        """The throughput of the largest number of workers, its interval and speedup, and the bottleneck."""
        most = int(self.workers[-1])
        over = self.base or self._sized(1)[0]
        gained = f", speedup {self.speedup[-1]:.3g} over {over}" if most != self.base_workers else ""
        limit = f"bottleneck {self.bottleneck}" if self.bottleneck else ""
        if np.isfinite(self.saturation_workers):
            knee = float(f"{max(self.saturation_workers, 1.0):.3g}")  # no group is smaller
            limit = f"saturation at {counted(knee, 'worker')}, {self.bottleneck}"
        found = f"{''.join(self._sized(most))}: {self[most]}{gained}"
        return "; ".join(filter(None, [found, limit, f"{percent(self.confidence)} intervals"]))

    def notes(self) -> list[str]:
        """Contradictions, assumptions, a run that would narrow the interval; then the method."""
        told = self.assumption.removeprefix("assuming ").removesuffix(" is assumed")
        assumption = Note(f"assumed: {told}" if told else "", "assumed")
        method, most = Note(f"method: {self.method}" if self.method else ""), self.profiled_workers
        known = Note(f"profiled up to {''.join(self._sized(most))}" if most else "not measured on such machines")
        return ranked([assumption, method, known, *self.remarks, Note(self._narrowing, "narrow")])

    @property
    def note(self) -> str:
        """The remarks in one text."""
        return joined(self.remarks)

    @property
    def _narrowing(self) -> str:
        """Which run to make next, where finding it takes no simulation."""
        if self.model is None or not self.model.quick:
            return ""
        following = next_measurement(self)
        return f"to narrow it: measure {following.run} for a minute" if following.workers else ""


LISTS = ("think_time", "bound_lower", "bound_upper", "steps_per_round")
#: What a saved curve has as it is.
PLAIN = ("confidence", "parameter_servers", "profiled_workers", "single", "base_workers", "workers_per_node",
         "dataset_size", "stations", "measured", "assumption", "synchronous")  # fmt: skip


def require_workers(workers: int | Iterable[int]) -> np.ndarray:
    """Increasing numbers of workers as an array, or a `ModelError`."""
    numbers = itertools.islice(workers, MOST_CURVE_WORKERS + 1) if isinstance(workers, Iterable) else [workers]
    counts = [require_count(n, "workers", most=MOST_CURVE_WORKERS) for n in numbers]
    if not counts:
        raise ModelError("workers must be one number or more, got none")
    if any(a >= b for a, b in itertools.pairwise(counts)):
        raise ModelError(f"workers must increase, got {workers!r}")
    return np.array(counts, dtype=int)
