"""Which way of training reaches the loss first: strategies side by side, from one profile.

    timing      what the profile says of the time of each: computation, transfers of fewer bytes, gradients
    compare     the strategies by name; runs each on a problem in simulated time, or asks a law of convergence
    plan        the cheapest strategy and number of workers for a deadline; one of them as a job for a cluster
    result      the table and its questions, its figures and its page

Time comes from the models of the profile (`queuemodel.prediction`), steps from training itself (`queuemodel.descent`).
"""

from .compare import NAMES, Candidate, compare
from .plan import StrategyChoice, StrategyPlan, job_of, plan_strategies
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
]
