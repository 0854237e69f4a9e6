"""What a way of training does to the loss, and which reaches it first.

The table of update rules (`strategy`, `compression`) runs on `problems` in simulated time (`loop`); `compare` sets its
clocks by predictions (`timing`), and `plan_strategies` and `job_of` start from its `result`.
"""

from .compare import NAMES, Candidate, compare
from .compression import QSGD, BlockSign, Compressor, Identity, RandomK, TopK
from .loop import Clock, Descent, descend
from .problems import (
    PROBLEM_KINDS,
    FixedPoint,
    LeastSquares,
    LogisticRegression,
    Perceptron,
    Problem,
    make_problem,
    split,
)
from .result import Compared, Comparison, StrategyPlan, job_of, plan_strategies, plot_losses, plot_time_to_target
from .strategy import (
    AdaComm,
    AdaQuantFL,
    DoubleCompression,
    LocalSGD,
    Moment,
    OrderedGradient,
    OverlapLocalSGD,
    OverTheAir,
    Reparameterized,
    Sent,
    ServerSGD,
    SquarmSGD,
    Strategy,
    SynchronousSGD,
    mixing_matrix,
)

__all__ = [
    "NAMES", "PROBLEM_KINDS", "QSGD", "AdaComm", "AdaQuantFL", "BlockSign", "Candidate", "Clock", "Compared",
    "Comparison", "Compressor", "Descent", "DoubleCompression", "FixedPoint", "Identity", "LeastSquares", "LocalSGD",
    "LogisticRegression", "Moment", "OrderedGradient", "OverTheAir", "OverlapLocalSGD", "Perceptron", "Problem",
    "RandomK", "Reparameterized", "Sent", "ServerSGD", "SquarmSGD", "Strategy", "StrategyPlan", "SynchronousSGD",
    "TopK", "compare", "descend", "job_of", "make_problem", "mixing_matrix", "plan_strategies", "plot_losses",
    "plot_time_to_target", "split",
]  # fmt: skip
