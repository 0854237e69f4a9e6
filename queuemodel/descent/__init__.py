"""What a way of training does to the loss: strategies run on problems, in simulated time.

    problems     losses over examples with known constants, made by seed; how examples are split among workers
    strategy     a way of training: state, update, what is sent; those that average whole parameters
    compression  strategies that send less than they know
    messages     strategies without a meeting of all: on a graph, in order, one by one on a server
    loop         the one loop that runs them, and its result

Problem and strategy are values; `descend` runs one on the other for several seeds side by side.
"""

from .compression import QSGD, AdaQuantFL, BlockSign, Compressor, DoubleCompression, Identity, RandomK, TopK
from .loop import Clock, Descent, Transfer, descend
from .messages import OrderedGradient, ServerSGD, SquarmSGD, mixing_matrix
from .problems import KINDS, LeastSquares, LogisticRegression, Perceptron, Problem, make_problem, split
from .strategy import WORD, AdaComm, LocalSGD, Moment, OverlapLocalSGD, Sent, Strategy, SynchronousSGD

__all__ = [
    "KINDS",
    "QSGD",
    "WORD",
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
    "OrderedGradient",
    "OverlapLocalSGD",
    "Perceptron",
    "Problem",
    "RandomK",
    "Sent",
    "ServerSGD",
    "SquarmSGD",
    "Strategy",
    "SynchronousSGD",
    "TopK",
    "Transfer",
    "descend",
    "make_problem",
    "mixing_matrix",
    "split",
]
