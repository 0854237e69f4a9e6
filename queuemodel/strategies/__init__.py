"""Ways of training: what a step of each computes, sends and waits for.

    rounds      how long a synchronous round takes: buckets behind one another on the network, ranks behind the slowest,
                and what BBR makes of single messages in a short buffer
    schemes     how gradients are put together, cut, ordered and sent: the frameworks' rules as values
    round_fit   what recorded rounds tell: computation, its spread, what the network carries (`round_network`), whose
                paces differ, and what the rates of untraced rounds correct
    loading     how long batches took that are loaded ahead, and how long ranks wait for the next
    from_steps  the same from steps on parameter servers, for a job that would reduce instead
    group       the rounds of so many ranks: their time, where it goes, how far predictions of it err
    all_reduce  the fitted model of data-parallel training and its curve
    half_synchronous  the strategies on parameter servers in which results or workers wait for others; staleness
    fit         from measurements to the model of any way of training
    simulated_rounds  rounds of every rank, drawn and sent; figures show them
    simulate    simulation of any way of training

Asynchronous training on parameter servers stands in `queuemodel.training`.
"""

from ..collectives import COLLECTIVES
from ..training.barrier import order_statistic
from .all_reduce import AllReduceModel
from .fit import fit
from .half_synchronous import HalfSynchronous, staleness
from .round_fit import FittedRounds, fit_rounds
from .rounds import round_time
from .schemes import SCHEMES, Buckets, Fusion, Slices
from .simulate import simulate
from .simulated_rounds import SimulatedRounds, simulate_rounds

__all__ = [
    "COLLECTIVES",
    "SCHEMES",
    "AllReduceModel",
    "Buckets",
    "FittedRounds",
    "Fusion",
    "HalfSynchronous",
    "SimulatedRounds",
    "Slices",
    "fit",
    "fit_rounds",
    "order_statistic",
    "round_time",
    "simulate",
    "simulate_rounds",
    "staleness",
]
