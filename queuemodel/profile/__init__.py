"""`Profile`: recorded steps or rounds, job, cluster and throughputs. `Scenario`: the question about the job."""

from .examples import copy_examples, example_files, example_profile, example_throughputs
from .job import Cluster, Job, Source
from .measurements import Measurement, Measurements, read_measurements
from .profile import Profile, Step
from .records import Bucket, Gradient, NoiseScale, Operation, Round, noise_scale
from .scenario import Scenario
from .synchronization import SYNCHRONIZATIONS, Synchronization

__all__ = [
    "SYNCHRONIZATIONS", "Bucket", "Cluster", "Gradient", "Job", "Measurement", "Measurements", "NoiseScale",
    "Operation", "Profile", "Round", "Scenario", "Source", "Step", "Synchronization", "copy_examples", "example_files",
    "example_profile", "example_throughputs", "noise_scale", "read_measurements",
]  # fmt: skip
