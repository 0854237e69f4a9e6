"""`Profile`: recorded steps or rounds, job, cluster and throughputs. `Scenario`: the question about the job."""

from .examples import copy_examples, example_files, example_profile, example_throughputs
from .job import Cluster, Job, Source
from .measurements import Measurement
from .profile import Profile, Step
from .records import Bucket, Gradient, NoiseScale, Operation, Round, noise_scale
from .scenario import Scenario
from .synchronization import SYNCHRONIZATIONS, Synchronization
from .throughputs import read_throughputs

__all__ = [
    "SYNCHRONIZATIONS", "Bucket", "Cluster", "Gradient", "Job", "NoiseScale", "Operation", "Profile", "Round",
    "Scenario", "Source", "Step", "Synchronization", "Measurement", "copy_examples", "example_files",
    "example_profile", "example_throughputs", "noise_scale", "read_throughputs",
]  # fmt: skip
