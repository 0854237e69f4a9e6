"""The solver value: a network, a population and a limit give a `Solution`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...checks import require_count
from ...errors import ModelError
from ...network import Network, Solution
from ..chains import solution_of

#: Measures of two starts that differ by more are not rounding.
SAME = 1e-6


@dataclass(frozen=True, slots=True)
class MarkovChain:
    """Steady state of the network's continuous-time Markov chain (Stewart, 1994), built state by state and sparse.

    Exact (to about 1e-9) for every discipline, several servers, load-dependent rates, fork-joins (with classes served
    alike) and phase-type service. A squared coefficient of variation without a distribution stands for the two-moment
    phase-type of `PhaseType.from_moments`; think times are exponential. States grow fast with population, stations and
    classes; a chain as large as the limit takes seconds.

    Where nobody thinks or shares a processor, stations may keep the customers' order for ever. When the measures depend
    on the order at the start, the network has no steady state of its own, and is refused.

    Parameters
    ----------
    most_states : int, default 60,000
        More are refused.
    """

    most_states: int = 60_000

    def __post_init__(self) -> None:
        require_count(self.most_states, "Markov chain: most_states", most=10_000_000)

    def solve(self, network: Network, population: int | tuple[int, ...]) -> Solution:
        """Measures at ``population``.

        Raises
        ------
        ModelError
            When there are more than `most_states` states, or the steady state depends on the start.
        """
        from .steady import closed_classes, steady_state  # both load scipy.sparse, which takes a tenth of a second
        from .transitions import Transitions

        counts = (population,) if isinstance(population, int) else population
        chain = Transitions(network, counts, self.most_states)
        answers = []
        for members in closed_classes(chain.rates):
            pi = np.zeros(len(chain.states))
            pi[members] = steady_state(chain.rates[members][:, members])
            answers.append(chain.measures(pi))
        Q, X, busy = answers[0]
        if any(not np.allclose(q, Q, rtol=SAME, atol=SAME) or not np.allclose(x, X, rtol=SAME) for q, x, _ in answers):
            rates = [x[[members[0] for members in network.chains]].sum() for _, x, _ in answers]
            raise ModelError(
                "Markov chain: the steady state depends on the order in which customers start (throughput "
                f"{min(rates):.6g} to {max(rates):.6g} /s), since nobody thinks or shares a processor; give a think "
                "time, or a station discipline='ps'"
            )
        return solution_of(
            network,
            population,
            X,
            Q,
            busy=busy,
            solver=f"Markov chain, {len(chain.states):,} states",
            exact=True,
            reason="the steady state of every state of the network: exact for any discipline",
        )
