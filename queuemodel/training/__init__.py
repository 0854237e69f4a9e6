"""How distributed training becomes a network: from a profile to a throughput curve and a plan.

A `Profile` (profile, of job and operations; throughputs reads CSV) is fitted (fit: step_fit, calibration,
growth for throughputs alone) to what one worker's step demands of each machine (demands), with draws for the
uncertainty and parameters that say how far to trust them (fitted, parameters). A `TrainingModel` (model) is that and
the what-ifs asked since (changes), told against the profile. A rule for each kind of cluster (rules) says how steps
wait for each other; what it answers becomes a `ThroughputCurve` (curve, drawn by figures), and that a `Plan` (plan),
and says which number of workers to measure next (next_measurement).

Another way of training is another rule; another what-if is a field of `Changes` and what it does to demands.
"""

from .curve import ThroughputCurve
from .fit import fit
from .growth import RoundModel
from .job import Cluster, Job, Source, Throughput
from .model import TrainingModel
from .next_measurement import NextMeasurement, next_measurement
from .operations import Operation
from .parameters import Parameter
from .plan import Choice, Plan, plan
from .profile import Profile, Step
from .rounds import Bucket, Gradient, Round
from .throughputs import read_throughputs

__all__ = [
    "Bucket",
    "Choice",
    "Cluster",
    "Gradient",
    "Job",
    "NextMeasurement",
    "Operation",
    "Parameter",
    "Plan",
    "Profile",
    "Round",
    "RoundModel",
    "Source",
    "Step",
    "Throughput",
    "ThroughputCurve",
    "TrainingModel",
    "fit",
    "next_measurement",
    "plan",
    "read_throughputs",
]
