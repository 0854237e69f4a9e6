"""Policies: frozen values that say how many nodes each job gets.

`base` says what a policy is, and hands out nodes in an order; those of `rigid` give a job what it asked for, those of
`sharing` divide or preempt, those of `model_based`, `rank_priced` and `goodput` follow predicted curves, node by node
through `increments`. `named` finds a policy by the name that the command line uses: a new one is one more class, and a
line there.
"""

from .base import Policy
from .goodput import Goodput
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
    "Goodput",
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
