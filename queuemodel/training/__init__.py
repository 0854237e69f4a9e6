"""How distributed training becomes a network: profiles, fits, throughput curves and plans."""

from .operations import Operation
from .profile import Cluster, Job, Profile, Source, Step, Throughput

__all__ = ["Cluster", "Job", "Operation", "Profile", "Source", "Step", "Throughput"]
