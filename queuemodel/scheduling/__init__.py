"""Scheduling a cluster with throughput predictions: jobs, policies, their simulation and its analysis."""

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
    "Cluster",
    "Completes",
    "DistortedCurve",
    "EndsEarly",
    "EqualShare",
    "FitnessMaximization",
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
    "TableCurve",
    "Workload",
    "as_curve",
    "policy_named",
    "simulate",
]
