"""How distributed training becomes a network: from a profile to a throughput curve and a plan.

A `Profile` (profile, of job and operations; throughputs reads CSV) is fitted (step_fit, calibration) to what one
worker's step demands of each machine (demands), with draws for the uncertainty and parameters that say how far to trust
them (fitted, parameters). A `TrainingModel` (model) is that and the what-ifs asked since, told against the profile
(scenario). A rule for each kind of cluster (rules) says how steps wait for each other; what it answers becomes a
`ThroughputCurve` (curve, drawn by figures), and that a `Plan` (plan), and says which number of workers to measure next
(next_measurement). Of throughputs alone there is a `GrowthModel` (growth).

Another way of training is another rule; another what-if is a field of `Scenario` and what it does to demands.
"""

from .calibration import fit_network
from .curve import ThroughputCurve
from .growth import GrowthModel, fit_throughputs
from .job import Cluster, Job, Source, Throughput
from .model import TrainingModel
from .next_measurement import NextMeasurement, next_measurement
from .operations import Operation
from .parameters import Parameter
from .plan import Choice, Plan, plan
from .profile import Profile, Step
from .rounds import Bucket, Gradient, Round
from .scenario import Scenario
from .throughputs import read_throughputs

__all__ = [
    "Bucket",
    "Choice",
    "Cluster",
    "Gradient",
    "GrowthModel",
    "Job",
    "NextMeasurement",
    "Operation",
    "Parameter",
    "Plan",
    "Profile",
    "Round",
    "Scenario",
    "Source",
    "Step",
    "Throughput",
    "ThroughputCurve",
    "TrainingModel",
    "fit_network",
    "fit_throughputs",
    "next_measurement",
    "plan",
    "read_throughputs",
]
