"""What a way of training does to the loss: strategies run on problems, in simulated time.

    problems     losses over examples with known constants, made by seed; how examples are split among workers
    strategy     a way of training: state, update, what is sent; synchronous SGD
    local, compression, messages
                 strategies in which all workers step together
    servers      strategies in which gradients are applied as they complete
    loop         the one loop that runs them, and its result

Problem and strategy are values; `descend` runs one on the other for several seeds side by side.
"""

from .compression import QSGD, AdaQuantFL, BlockSign, Compressor, DoubleCompression, Identity, RandomK, TopK
from .local import AdaComm, LocalSGD, OverlapLocalSGD
from .loop import Clock, Descent, descend
from .messages import OrderedGradient, OverTheAir, SquarmSGD, mixing_matrix, spectral_gap
from .problems import LeastSquares, LogisticRegression, Perceptron, Problem, SigmoidSquares, make_problem, split
from .servers import Order, ServerSGD
from .strategy import Moment, Sent, Strategy, SynchronousSGD

__all__ = [
    "QSGD",
    "AdaComm",
    "AdaQuantFL",
    "BlockSign",
    "Clock",
    "Compressor",
    "Descent",
    "DoubleCompression",
    "Identity",
    "LeastSquares",
    "LocalSGD",
    "LogisticRegression",
    "Moment",
    "Order",
    "OrderedGradient",
    "OverTheAir",
    "OverlapLocalSGD",
    "Perceptron",
    "Problem",
    "RandomK",
    "Sent",
    "ServerSGD",
    "SigmoidSquares",
    "SquarmSGD",
    "Strategy",
    "SynchronousSGD",
    "TopK",
    "descend",
    "make_problem",
    "mixing_matrix",
    "spectral_gap",
    "split",
]
