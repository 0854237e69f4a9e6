"""Scheduling a cluster with throughput predictions.

A `Job` is work in steps, a speed curve (`curves`), the law of its end (`ends`) and, where it may choose them, its
`batch_sizes`; these, and a curve in `stages`, make `phases` of it. A `Workload` of jobs comes from
files (`workloads`, one reader per format) or from random `streams` of `kinds`. `simulate` runs it on a `Cluster` under
one of the `policies`, which sees only the columns of `view` that it declares: `engine` advances the `state`, with its
`failures`, and yields a `Schedule`, one record per job and the figures that follow. `study` repeats that over policies
and loads, and `runs` holds what comes out; `figures` draws both.

Curves are asked once per kind of job and number of nodes (`speed_tables`); nothing else here knows a performance model.
"""

from .batch_sizes import BatchSizes, statistical_efficiency
from .cluster import Cluster
from .curves import DistortedCurve, PowerLawCurve, SpeedCurve, TableCurve, as_curve
from .ends import Completes, EndsEarly
from .jobs import Job, Workload
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
from .stages import StagedCurve
from .view import ActiveJobs, JobState

__all__ = [
    "FIFO",
    "POLICIES",
    "SRPT",
    "ActiveJobs",
    "Backfill",
    "BatchSizes",
    "Cluster",
    "Completes",
    "DistortedCurve",
    "EndsEarly",
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
