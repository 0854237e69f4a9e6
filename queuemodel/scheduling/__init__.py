"""Scheduling a cluster with throughput predictions.

A `ClusterJob` is work in steps, a speed curve (`curves`), the law of its end and, where it may choose them, its batch
sizes. A `Workload` of `jobs` comes from files (`workloads`) or from a random `Stream`. `schedule` runs it on `Nodes`
under one of the `policies`, which sees only the columns of `ActiveJobs` that it declares: `engine` advances the `state`
and yields a `Schedule`, one record per job and the figures that follow. `study` repeats that over policies and loads.

Curves are asked once per kind of job and number of nodes; nothing else here knows a performance model.
"""

from .curves import BatchSizes, PowerLawCurve, SpeedTables, StagedCurve, TableCurve, as_curve, statistical_efficiency
from .jobs import ClusterJob, JobKind, Stream, Workload, example_kinds, measured_kinds
from .nodes import Nodes
from .policies import POLICIES, policy_named
from .policies.base import ActiveJobs, Policy
from .policies.baseline import FIFO, SRPT, Backfill, EqualShare, HeSRPT, LeastAttainedService, ShortestJobFirst
from .policies.model_based import FitnessMaximization, Goodput, GreedyGain, ModelBased, Optimus, RankPriced
from .result import Schedule, plot_nodes, plot_response_times
from .study import Study, StudyRun, plot_sweep, run_all, schedule, sweep
from .workloads.pollux import read_pollux
from .workloads.published import read_alibaba, read_elasticflow, read_gavel, read_philly
from .workloads.workload_csv import read_workload

__all__ = [
    "FIFO", "POLICIES", "SRPT", "ActiveJobs", "Backfill", "BatchSizes", "ClusterJob", "EqualShare",
    "FitnessMaximization", "Goodput", "GreedyGain", "HeSRPT", "JobKind", "LeastAttainedService", "ModelBased", "Nodes",
    "Optimus", "Policy", "PowerLawCurve", "RankPriced", "Schedule", "ShortestJobFirst", "SpeedTables", "StagedCurve",
    "Stream", "Study", "StudyRun", "TableCurve", "Workload", "as_curve", "example_kinds", "measured_kinds",
    "plot_nodes", "plot_response_times", "plot_sweep", "policy_named", "read_alibaba", "read_elasticflow", "read_gavel",
    "read_philly", "read_pollux", "read_workload", "run_all", "schedule", "statistical_efficiency", "sweep",
]  # fmt: skip
