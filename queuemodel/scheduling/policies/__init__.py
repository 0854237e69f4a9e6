"""Policies: frozen values that say how many nodes each job gets."""

from .base import Policy
from .model_based import FitnessMaximization, GreedyGain, ModelBased, Optimus
from .named import POLICIES, policy_named
from .rank_priced import RankPriced
from .rigid import FIFO, Backfill, ShortestJobFirst
from .sharing import SRPT, EqualShare, HeSRPT, LeastAttainedService

__all__ = [
    "FIFO",
    "POLICIES",
    "SRPT",
    "Backfill",
    "EqualShare",
    "FitnessMaximization",
    "GreedyGain",
    "HeSRPT",
    "LeastAttainedService",
    "ModelBased",
    "Optimus",
    "Policy",
    "RankPriced",
    "ShortestJobFirst",
    "policy_named",
]
