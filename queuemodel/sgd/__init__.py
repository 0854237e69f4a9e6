"""What a way of training does to the loss, and which reaches it first.

Strategies (strategy, compression, messages) run on problems in simulated time (loop); `compare` sets their clocks by
predictions (timing), and `plan_strategies` and `job_of` start from its result.
"""

from .compare import NAMES, Candidate, compare
from .compression import QSGD, AdaQuantFL, BlockSign, Compressor, DoubleCompression, Identity, RandomK, TopK
from .loop import Clock, Descent, Transfer, descend
from .messages import OrderedGradient, ServerSGD, SquarmSGD, mixing_matrix
from .plan import StrategyChoice, StrategyPlan, job_of, plan_strategies
from .problems import KINDS, LeastSquares, LogisticRegression, Perceptron, Problem, make_problem, split
from .result import Compared, Comparison, plot_losses, plot_time_to_target
from .strategy import WORD, AdaComm, LocalSGD, Moment, OverlapLocalSGD, Sent, Strategy, SynchronousSGD

__all__ = [
    "KINDS",
    "NAMES",
    "QSGD",
    "WORD",
    "AdaComm",
    "AdaQuantFL",
    "BlockSign",
    "Candidate",
    "Clock",
    "Compared",
    "Comparison",
    "Compressor",
    "Descent",
    "DoubleCompression",
    "Identity",
    "LeastSquares",
    "LocalSGD",
    "LogisticRegression",
    "Moment",
    "OrderedGradient",
    "OverlapLocalSGD",
    "Perceptron",
    "Problem",
    "RandomK",
    "Sent",
    "ServerSGD",
    "SquarmSGD",
    "Strategy",
    "StrategyChoice",
    "StrategyPlan",
    "SynchronousSGD",
    "TopK",
    "Transfer",
    "compare",
    "descend",
    "job_of",
    "make_problem",
    "mixing_matrix",
    "plan_strategies",
    "plot_losses",
    "plot_time_to_target",
    "split",
]
