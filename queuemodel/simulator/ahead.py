"""The simulation's loop compiled at installation: ``python -m queuemodel.simulator.ahead MODULE.so``."""

import sys
from pathlib import Path

import numpy as np

from ..base.compiled import compile_ahead
from ..profile.bandwidth import transports_of
from ..profile.examples import example_profile
from .graph import prepare
from .kernel import loop
from .kernel.state import new_state
from .simulate import cluster_rules


def arguments() -> tuple:
    """What `simulate` calls the loop with; all simulations do so with the same types."""
    graphs = prepare(example_profile())
    kind, *_ = transports_of(graphs.profile)
    rules = cluster_rules(kind, workers=1, transfer_order=graphs.transfer_order)
    state = new_state(graphs.steps, links=np.ones((2, graphs.parameter_servers + 1)), starts=np.zeros(1), rules=rules)
    return graphs.steps, state, rules, np.random.default_rng(0), 1, 1


if __name__ == "__main__":
    from numba import typeof, types

    compile_ahead(loop, "run", types.boolean(*map(typeof, arguments())), Path(sys.argv[1]).resolve())
