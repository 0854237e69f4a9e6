"""Which way of training reaches the loss first: strategies side by side, from one profile.

    candidates  the strategies by name: what each does to the loss, and how its time is predicted
    timing      what the profile says of the time of each: computation, transfers of fewer bytes, gradients
    by_training runs one on a problem in simulated time; by_law asks a law of convergence
    compare     does one or the other for each
    orders      orders of completion from a simulated cluster
    jobs        one of them as a job for a cluster
    plan        the cheapest strategy and number of workers for a deadline
    result      the table and its questions; figures: loss against time, time against nodes

Time comes from the models of the profile (`queuemodel.prediction`), steps from training itself (`queuemodel.descent`).
"""

from .candidates import NAMES, Candidate
from .compare import compare
from .jobs import job_of
from .orders import simulated_order
from .plan import StrategyChoice, StrategyPlan, plan_strategies
from .result import Compared, Comparison

__all__ = [
    "NAMES",
    "Candidate",
    "Compared",
    "Comparison",
    "StrategyChoice",
    "StrategyPlan",
    "compare",
    "job_of",
    "plan_strategies",
    "simulated_order",
]
