"""Ways of training: what a step of each computes, sends and waits for.

    rounds      how long a synchronous round takes: buckets behind one another on the network, ranks behind the slowest
    buckets     how gradients are put together
    round_fit   what recorded rounds tell: computation, its spread, and what the network carries
    group       the rounds of so many ranks: their time, where it goes, how sure it is
    all_reduce  the fitted model of data-parallel training, its what-ifs and its curve

Asynchronous training on parameter servers stands in `queuemodel.training`.
"""

from .all_reduce import AllReduceModel
from .round_fit import FittedRounds, fit_rounds
from .rounds import round_time

__all__ = ["AllReduceModel", "FittedRounds", "fit_rounds", "round_time"]
