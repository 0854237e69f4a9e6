"""The solution of a network: measures at a population, or at every population up to it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.checks import extra
from ..base.errors import ModelError
from ..base.results import Result, percent
from .lowered import Lowered, lower
from .network import Network

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Solution(Result):
    """Steady-state measures of a network.

    Only throughputs and residence times are stored; everything else follows from them by Little's law. With several
    classes, measures without *class_* are those of all customers together.

    Attributes
    ----------
    network : Network
    population : int
        Customers of all closed classes; measures in the singular are at this population.
    throughputs : ndarray, shape (population,) or (1,)
        Cycles per second at populations 1, 2, ..., `population`, or at `population` alone.
    residence_times : ndarray, shape (population, K) or (1, K)
        Seconds per cycle at each station, waiting and in service.
    solver : str
        The solver's name, with its parameters.
    exact : bool
        Whether the answer is exact for the network as described (up to rounding), or an approximation.
    reason : str
        Why this solver, and why its answer is exact or not.
    expected_error : float
        Relative error of the throughput to expect, if it is not exact: of approximations the 95th percentile on random
        networks of this kind, of a simulation half its interval; NaN where it is not known.
    class_populations : tuple of int
        Customers per class, C of them; empty without classes.
    class_throughputs : ndarray, shape (C,), optional
        Cycles per second of each class; classes that customers switch between share theirs.
    class_residence_times : ndarray, shape (K, C), optional
        Seconds per cycle of each class at each station.
    busy : ndarray, shape (population, K) or (1, K), optional
        Probability that a customer is at a station, NaN if unknown; load-dependent ones need it.
    """

    network: Network
    population: int
    throughputs: np.ndarray
    residence_times: np.ndarray
    solver: str
    exact: bool
    reason: str = ""
    class_populations: tuple[int, ...] = ()
    class_throughputs: np.ndarray | None = None
    class_residence_times: np.ndarray | None = None
    busy: np.ndarray | None = None
    expected_error: float = math.nan

    def __post_init__(self) -> None:
        classes = (self.class_throughputs, self.class_residence_times)
        for array in (self.throughputs, self.residence_times, *classes, self.busy):
            if array is not None:
                array.setflags(write=False)

    @property
    def known_error(self) -> float | None:
        """The `expected_error`: 0 of an exact answer, None where it is not known."""
        return 0.0 if self.exact else None if math.isnan(self.expected_error) else self.expected_error

    @property
    def throughput(self) -> float:
        """Cycles per second."""
        return float(self.throughputs[-1])

    @property
    def residence_time(self) -> np.ndarray:
        """Seconds per cycle at each station, shape (K,)."""
        return self.residence_times[-1]

    @property
    def response_time(self) -> float:
        """Seconds per cycle at all stations together."""
        return float(self.residence_time.sum())

    @property
    def class_customers(self) -> np.ndarray:
        """Customers of each class, shape (C,): populations, and of open classes the mean number at all stations."""
        there = np.array(self.class_populations or [self.population], dtype=float)
        return np.where(self.network.arrival_rates > 0, self.class_queue_length.sum(axis=0), there)

    @property
    def cycle_time(self) -> float:
        """Seconds per cycle: response time and think time."""
        if self.class_throughputs is not None:
            return float(self.class_customers.sum()) / self.throughput  # Little's law over all classes
        return self.response_time + self.network.think_time  # R + Z

    @property
    def queue_length(self) -> np.ndarray:
        """Mean customers waiting and in service at each station, shape (K,); X R_k by Little's law."""
        return self.throughput * self.residence_time  # Little's law

    @property
    def utilization(self) -> np.ndarray:
        """Busy share of each station's servers, shape (K,), X D_k / m; for a delay station the mean number in service.

        For a load-dependent station the probability that a customer is there.
        """
        return self.class_utilization.sum(axis=1)

    @property
    def class_throughput(self) -> np.ndarray:
        """Cycles per second of each class, shape (C,)."""
        return self.throughputs[-1:] if self.class_throughputs is None else self.class_throughputs

    @property
    def class_residence_time(self) -> np.ndarray:
        """Seconds per cycle of each class at each station, shape (K, C)."""
        return self.residence_times[-1:].T if self.class_residence_times is None else self.class_residence_times

    @property
    def class_queue_length(self) -> np.ndarray:
        """Mean customers of each class at each station, shape (K, C)."""
        return self.class_throughput * self.class_residence_time  # Little's law

    @property
    def class_utilization(self) -> np.ndarray:
        """Share of each station's servers that each class keeps busy, shape (K, C)."""
        work = self.class_throughput * self.network.class_service_demand
        U = work / self._servers[:, None]  # utilization law: U = X D / m
        if self.busy is not None:
            share = work / np.maximum(work.sum(axis=1, keepdims=True), 1e-300)
            U = np.where(self._rated[:, None], share * self.busy[-1][:, None], U)
        return U

    @property
    def _servers(self) -> np.ndarray:
        return np.array([1.0 if s.is_delay else s.servers for s in self.network.stations])

    @property
    def _rated(self) -> np.ndarray:
        """Load-dependent stations, whose utilization is the probability that a customer is there, shape (K,)."""
        rated = np.array([s.rates is not None for s in self.network.stations])
        return rated if self.busy is None else rated & np.isfinite(self.busy[-1])

    @property
    def bottleneck(self) -> str | None:
        """The queueing station with the largest share of its highest speed in use; None without queues."""
        low = lower(self.network, self.class_populations or self.population)
        X = self.class_throughput[[chain[0] for chain in self.network.chains]]
        load = replace(low, open_load=0.0 * low.open_load).load @ X
        return self.network.names[int(load.argmax())] if load.any() else None

    @property
    def populations(self) -> np.ndarray:
        """The populations that `throughputs` and `residence_times` are of."""
        return np.arange(self.population + 1 - len(self.throughputs), self.population + 1)

    def at(self, population: int) -> Solution:
        """The same solution at a smaller population, without solving again."""
        first = int(self.populations[0])
        if not first <= population <= self.population:
            raise ModelError(f"solution: population must be {first} to {self.population}, got {population!r}")
        end, busy = int(population) - first + 1, self.busy
        X, R, busy = self.throughputs[:end], self.residence_times[:end], None if busy is None else busy[:end]
        return replace(self, population=int(population), throughputs=X, residence_times=R, busy=busy)

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per station, and class where there are several: the measures at `population`."""
        return self.network.rows_of(
            service_demand=self.network.class_service_demand,
            utilization=self.class_utilization,
            queue_length=self.class_queue_length,
            residence_time=self.class_residence_time,
        )

    def class_rows(self) -> list[dict[str, Any]]:
        """Customers, throughput and cycle time: one row per class, or for classes that customers switch between."""
        names, N = self.network.class_names or ["all"], self.class_populations or (self.population,)
        rows = []
        for chain in map(list, self.network.chains):
            is_open = self.network.arrival_rates[chain[0]] > 0
            n = float(self.class_customers[chain[0]]) if is_open else sum(N[c] for c in chain)
            x, name = float(self.class_throughput[chain[0]]), ", ".join(names[c] for c in chain)
            rows.append({"class": name, "population": n, "throughput": x, "cycle_time": n / x if x > 0 else 0.0})
        return rows

    def to_frame(self) -> pandas.DataFrame:
        """One row per population: throughput, cycle time, and per station queue length and utilization.

        With classes one row per class and station: the class's throughput, and the measures of `to_rows`.
        """
        pandas = extra("pandas", "frames", what="a DataFrame")
        if self.network.classes:
            x = dict(zip(self.network.class_names, self.class_throughput.tolist(), strict=True))
            rows = [{"class": row["class"], "throughput": x[row["class"]]} | row for row in self.to_rows()]
            return pandas.DataFrame(sorted(rows, key=lambda row: list(x).index(row["class"])))
        X = self.throughputs[:, None]
        Q, U = X * self.residence_times, X * self.network.service_demand / self._servers  # Little's, utilization law
        if self.busy is not None:
            U = np.where(self._rated, self.busy, U)
        columns = {"population": self.populations, "throughput": X[:, 0], "cycle_time": self.populations / X[:, 0]}
        for k, name in enumerate(self.network.names):
            columns |= {f"queue_length[{name}]": Q[:, k], f"utilization[{name}]": U[:, k]}
        return pandas.DataFrame(columns)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `to_json` writes them."""
        document = {
            "solver": self.solver,
            "exact": self.exact,
            "expected_error": self.known_error,
            "population": self.population,
            "throughput": self.throughput,
            "cycle_time": self.cycle_time,
            "bottleneck": self.bottleneck,
            "stations": self.to_rows(),
        }
        if self.reason:
            document["reason"] = self.reason
        if self.network.classes:
            document["classes"] = self.class_rows()
        return document

    def caption(self) -> str:
        """Population, throughput, cycle time and `method`."""
        arriving = self.network.arrival_rates.sum()
        return (
            f"{self.network.name or 'network'}: population {self.population}, "
            f"{f'{arriving:.6g} arrivals/s, ' if arriving else ''}throughput {self.throughput:.6g} /s, "
            f"cycle time {self.cycle_time:.6g} s {self.method()}"
        )

    def method(self) -> str:
        """The solver, whether it is exact, and on a second line the reason of an unusual choice."""
        error = "" if math.isnan(self.expected_error) else f", error to expect {percent(self.expected_error, 1)}"
        about = f"({self.solver}, {'exact' if self.exact else f'approximate{error}'})"
        return f"{about}\n{self.reason}" if self.reason and self.solver != "exact MVA" else about

    def _tables(self) -> list[list[dict[str, Any]]]:
        """Classes where there are several, then stations."""
        return [*([self.class_rows()] if self.network.classes else []), self.to_rows()]


def solution_of(low: Lowered, X: np.ndarray, Q: np.ndarray, busy: np.ndarray | None = None, **about: Any) -> Solution:
    """The solution with throughputs X (C,) and queue lengths Q (K, C) of classes; ``about``: its other fields."""
    network = low.network
    total = float(X[[chain[0] for chain in network.chains]].sum())
    if network.classes:
        with np.errstate(invalid="ignore", divide="ignore"):
            about["class_residence_times"] = np.where(X > 0, Q / X, 0.0)  # Little's law
        about |= {"class_populations": low.populations, "class_throughputs": X}
    R = (Q.sum(axis=1) / total)[None, :]
    return Solution(network, int(low.N.sum()), np.array([total]), R, busy=None if busy is None else busy[None], **about)


def by_class(low: Lowered, X: np.ndarray, Q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """X (C,) and Q (K, C) of classes from those of chains, whose customers are in every class in each cycle."""
    if low.network.routing is None:  # each class is the whole of its chain
        return X, Q
    share, chains = low.share, low.network.chains
    chain_of = [i for c in range(share.shape[1]) for i, chain in enumerate(chains) if c in chain]
    return X[chain_of], Q[:, chain_of] * share
