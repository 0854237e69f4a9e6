"""How distributed training becomes a network: profiles, fits, throughput curves and plans."""

from .curve import ThroughputCurve
from .fit import fit
from .model import TrainingModel
from .operations import Operation
from .parameters import Parameter
from .plan import Choice, Plan, plan
from .profile import Cluster, Job, Profile, Source, Step, Throughput
from .throughputs import read_throughputs

__all__ = [
    "Choice",
    "Cluster",
    "Job",
    "Operation",
    "Parameter",
    "Plan",
    "Profile",
    "Source",
    "Step",
    "Throughput",
    "ThroughputCurve",
    "TrainingModel",
    "fit",
    "plan",
    "read_throughputs",
]
