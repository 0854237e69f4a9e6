"""What a way of training does to the loss: strategies run on problems, in simulated time.

    problem, problems   losses over examples with known constants; gradients of many workers at once
    data                problems made by seed, and how examples are split among workers
    compressors, graphs what is sent instead of a vector; who averages with whom
    strategy            a way of training: state, update, what is sent
    synchronous, local, adacomm, overlap, double_compression, gossip, adaquant, ordered, over_the_air
                        strategies in which all workers step together
    orders, waiting     strategies in which gradients are applied as they complete
    loop, descent       the one loop that runs them, and its result

Problem and strategy are values; `descend` runs one on the other for several seeds side by side.
"""

from .adacomm import AdaComm
from .adaquant import AdaQuantFL
from .compressors import QSGD, BlockSign, Compressor, Identity, RandomK, TopK
from .data import make_problem, split
from .descent import Descent
from .double_compression import DoubleCompression
from .gossip import SquarmSGD
from .graphs import mixing_matrix, spectral_gap
from .local import LocalSGD
from .loop import Clock, descend
from .ordered import OrderedGradient
from .orders import Order
from .over_the_air import OverTheAir
from .overlap import OverlapLocalSGD
from .problem import Problem
from .problems import LeastSquares, LogisticRegression, Perceptron, SigmoidSquares
from .strategy import Strategy
from .synchronous import SynchronousSGD
from .waiting import ServerSGD

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
    "Order",
    "OrderedGradient",
    "OverTheAir",
    "OverlapLocalSGD",
    "Perceptron",
    "Problem",
    "RandomK",
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
