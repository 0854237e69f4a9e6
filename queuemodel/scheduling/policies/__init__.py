"""Policies: frozen values that say how many nodes each job gets.

`base` says what a policy is, and hands out nodes in an order; those of `baseline` give a job what it asked for, divide
or preempt, those of `model_based` follow predicted curves, node by node through `increments`. `named` finds a policy by
the name that the command line uses: a new one is one more class, and a line there.
"""

from .base import Policy
from .baseline import FIFO, SRPT, Backfill, EqualShare, HeSRPT, LeastAttainedService, ShortestJobFirst
from .model_based import FitnessMaximization, Goodput, GreedyGain, ModelBased, Optimus, RankPriced
from .named import POLICIES, policy_named

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
