"""Rounds of data-parallel training: what was recorded (`fit`), of groups of `ranks`, sent by `schemes`, in `times`."""

from .base import RoundModel
from .fit import FittedRounds, fit_rounds
from .model import METHOD, NEEDS, AllReduceModel, of, refuses
from .schemes import SCHEMES, Buckets, Fusion, Slices
from .times import round_time
from .view import SimulatedRounds, plot_round, simulate_rounds

__all__ = [
    "METHOD",
    "NEEDS",
    "SCHEMES",
    "AllReduceModel",
    "Buckets",
    "FittedRounds",
    "Fusion",
    "RoundModel",
    "SimulatedRounds",
    "Slices",
    "fit_rounds",
    "of",
    "plot_round",
    "refuses",
    "round_time",
    "simulate_rounds",
]  # fmt: skip
