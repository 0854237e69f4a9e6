"""Scheduling a cluster with throughput predictions.

A `Workload` of `ClusterJob`s (steps and a speed curve each), from files or a random `Stream`, runs on `Nodes` under a
`Policy`: `schedule` yields a `Schedule`, one record per job; a `Study` repeats that over policies and loads.
"""

from .curves import BatchSizes, PowerLawCurve, SpeedTables, StagedCurve, TableCurve, as_curve, statistical_efficiency
from .jobs import ClusterJob, JobKind, Stream, Workload, example_kinds, measured_kinds
from .model_based import SRPT, FitnessMaximization, Goodput, GreedyGain, ModelBased, Optimus, RankPriced
from .nodes import Nodes
from .policies import FIFO, POLICIES, Backfill, EqualShare, HeSRPT, LeastAttainedService, ShortestJobFirst, policy_named
from .policy import ActiveJobs, Policy
from .published import read_job_trace, read_jobs
from .result import Schedule, plot_nodes, plot_response_times
from .study import Study, StudyRun, plot_sweep, run_all, schedule, sweep
from .workload_files import read_workload

__all__ = [
    "FIFO", "POLICIES", "SRPT", "ActiveJobs", "Backfill", "BatchSizes", "ClusterJob", "EqualShare",
    "FitnessMaximization", "Goodput", "GreedyGain", "HeSRPT", "JobKind", "LeastAttainedService", "ModelBased", "Nodes",
    "Optimus", "Policy", "PowerLawCurve", "RankPriced", "Schedule", "ShortestJobFirst", "SpeedTables", "StagedCurve",
    "Stream", "Study", "StudyRun", "TableCurve", "Workload", "as_curve", "example_kinds", "measured_kinds",
    "plot_nodes", "plot_response_times", "plot_sweep", "policy_named", "read_job_trace", "read_jobs", "read_workload",
    "run_all", "schedule", "statistical_efficiency", "sweep",
]  # fmt: skip
