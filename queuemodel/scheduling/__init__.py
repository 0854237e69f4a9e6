"""Scheduling a cluster with throughput predictions.

A `Job` is work in steps, a speed curve (`curves`), the law of its end and, where it may choose them, its batch sizes;
these, and a curve in stages, make `phases` of it. A `Workload` of `jobs` comes from files (`workloads`, one reader per
format) or from random `streams`. `simulate` runs it on a `Cluster` under one of the `policies`, which sees only the
columns of `view` that it declares: `engine` advances the `state` and yields a `Schedule`, one record per job and the
figures that follow. `study` repeats that over policies and loads; `figures` draws both.

Curves are asked once per kind of job and number of nodes (`speed_tables`); nothing else here knows a performance model.
"""

from .cluster import Cluster
from .curves import DistortedCurve, PowerLawCurve, SpeedCurve, TableCurve, as_curve
from .jobs import Job, Workload
from .phases import BatchSizes, StagedCurve, statistical_efficiency
from .policies import (
    FIFO,
    POLICIES,
    SRPT,
    Backfill,
    EqualShare,
    FitnessMaximization,
    Goodput,
    GreedyGain,
    HeSRPT,
    LeastAttainedService,
    ModelBased,
    Optimus,
    Policy,
    RankPriced,
    ShortestJobFirst,
    policy_named,
)
from .schedule import Schedule
from .simulate import simulate
from .view import ActiveJobs, JobState

__all__ = [
    "FIFO",
    "POLICIES",
    "SRPT",
    "ActiveJobs",
    "Backfill",
    "BatchSizes",
    "Cluster",
    "DistortedCurve",
    "EqualShare",
    "FitnessMaximization",
    "Goodput",
    "GreedyGain",
    "HeSRPT",
    "Job",
    "JobState",
    "LeastAttainedService",
    "ModelBased",
    "Optimus",
    "Policy",
    "PowerLawCurve",
    "RankPriced",
    "Schedule",
    "ShortestJobFirst",
    "SpeedCurve",
    "StagedCurve",
    "TableCurve",
    "Workload",
    "as_curve",
    "policy_named",
    "simulate",
    "statistical_efficiency",
]
