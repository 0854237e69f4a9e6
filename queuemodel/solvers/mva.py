"""Exact mean-value analysis."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ModelError
from ..network import Network, Solution
from .convolution import Convolution
from .lowering import MEMORY, Chains, chains_of, refuse_without_product_form
from .multiclass import solve_classes
from .recursions import recursion


@dataclass(frozen=True, slots=True)
class ExactMVA:
    """Exact mean-value analysis of closed product-form networks (Reiser and Lavenberg, 1980).

    Exact (up to rounding) when the network has product form: processor sharing or last-come-first-served-preemptive
    queues with any service distribution, first-come-first-served queues with exponential service that is the same for
    all classes, and delays with any. Anything else is refused. Stations with several servers or load-dependent rates
    go through normalizing constants, whose digits do not get lost as those of the textbook's recursion do.

    Without classes, time is proportional to the population times the number of stations and all populations up to the
    one asked for are kept. With classes, the cheapest of several exact recursions is taken; its memory is at most the
    product of the populations (each plus one) of all classes but the largest, and classes that are alike count as one.

    Parameters
    ----------
    memory : int, default 4 GiB
        Bytes that a solution may need; more is refused before starting, with the numbers.
    """

    memory: int = MEMORY

    def solve(self, network: Network, population: int | tuple[int, ...]) -> Solution:
        """Measures for populations 1 to ``population``, or at the classes' populations."""
        if isinstance(population, int) == bool(network.classes):
            wanted = "one number per class" if network.classes else "a whole number"
            raise ModelError(f"exact MVA: population must be {wanted}, got {population!r}")
        chains = chains_of(network, population)
        refuse_without_product_form(chains, "exact MVA")
        return self.solved(chains)

    def solved(self, chains: Chains) -> Solution:
        """The same of a network that is lowered already and has product form."""
        if chains.network.classes:
            return solve_classes(chains, self.memory)
        return Convolution().solve(chains.network, int(chains.N[0])) if chains.why_not_plain() else self._single(chains)

    def _single(self, chains: Chains) -> Solution:
        K, N = len(chains.D), int(chains.N[0])
        if self.memory < 8 * N * (K + 1):
            raise ModelError(
                f"exact MVA: populations 1 to {N:,} of {K} stations take {8 * N * (K + 1):,} bytes, "
                f"more than {self.memory:,}; take a smaller population, or bounds"
            )
        D = chains.D[:, 0]
        delays = D * chains.delay
        X, R = recursion(D - delays, float(chains.Z[0] + delays.sum()), N)
        R[:, chains.delay] = D[chains.delay]
        return Solution(
            chains.network,
            N,
            X,
            R,
            solver="exact MVA",
            exact=True,
            reason="single class with product form: the recursion is exact and cheap",
        )
