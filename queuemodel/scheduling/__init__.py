"""Scheduling a cluster with throughput predictions.

A `Job` is work in steps, a speed curve (`curves`), the law of its end and, where it may choose them, its batch sizes;
these, and a curve in stages, make `phases` of it. A `Workload` of `jobs` comes from files (`workloads`, one reader per
format) or from random `streams`. `simulate` runs it on a `Cluster` under one of the `policies`, which sees only the
columns of `view` that it declares: `engine` advances the `state` and yields a `Schedule`, one record per job and the
figures that follow. `study` repeats that over policies and loads; `figures` draws both.

Curves are asked once per kind of job and number of nodes; nothing else here knows a performance model.
"""

from .cluster import Cluster
from .curves import PowerLawCurve, TableCurve, as_curve
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
from .streams import JobKind, Stream, example_kinds, measured_kinds
from .study import Study, sweep
from .view import ActiveJobs
from .workloads import read_alibaba, read_elasticflow, read_gavel, read_philly, read_pollux, read_workload

__all__ = [
    "FIFO",
    "POLICIES",
    "SRPT",
    "ActiveJobs",
    "Backfill",
    "BatchSizes",
    "Cluster",
    "EqualShare",
    "FitnessMaximization",
    "Goodput",
    "GreedyGain",
    "HeSRPT",
    "Job",
    "JobKind",
    "LeastAttainedService",
    "ModelBased",
    "Optimus",
    "Policy",
    "PowerLawCurve",
    "RankPriced",
    "Schedule",
    "ShortestJobFirst",
    "StagedCurve",
    "Stream",
    "Study",
    "TableCurve",
    "Workload",
    "as_curve",
    "example_kinds",
    "measured_kinds",
    "policy_named",
    "read_alibaba",
    "read_elasticflow",
    "read_gavel",
    "read_philly",
    "read_pollux",
    "read_workload",
    "simulate",
    "statistical_efficiency",
    "sweep",
]
