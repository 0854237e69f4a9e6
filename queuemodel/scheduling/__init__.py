"""Scheduling a cluster with throughput predictions.

A `Job` is work in steps, a speed curve (`curves`), the law of its end and, where it may choose them, its batch sizes;
these, and a curve in stages, make `phases` of it. A `Workload` of `jobs` comes from files (`workloads`, one reader per
format) or from random `streams`. `simulate` runs it on a `Cluster` under one of the `policies`, which sees only the
columns of `view` that it declares: `engine` advances the `state` and yields a `Schedule`, one record per job and the
figures that follow. `study` repeats that over policies and loads; `figures` draws both.

Curves are asked once per kind of job and number of nodes; nothing else here knows a performance model.
"""

from .cluster import ActiveJobs, Cluster
from .curves import PowerLawCurve, TableCurve, as_curve
from .engine import simulate
from .jobs import Job, Workload
from .phases import BatchSizes, StagedCurve, statistical_efficiency
from .policies import POLICIES, policy_named
from .policies.base import Policy
from .policies.baseline import FIFO, SRPT, Backfill, EqualShare, HeSRPT, LeastAttainedService, ShortestJobFirst
from .policies.model_based import FitnessMaximization, Goodput, GreedyGain, ModelBased, Optimus, RankPriced
from .schedule import Schedule
from .streams import JobKind, Stream, example_kinds, measured_kinds
from .study import Study, plot_nodes, plot_response_times, plot_sweep, sweep
from .workloads.alibaba import read_alibaba
from .workloads.elasticflow import read_elasticflow
from .workloads.gavel import read_gavel
from .workloads.philly import read_philly
from .workloads.pollux import read_pollux
from .workloads.workload_csv import read_workload

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
    "plot_nodes",
    "plot_response_times",
    "plot_sweep",
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
