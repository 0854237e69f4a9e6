"""From measurements to a prediction: a model for each kind of data, used through `fit`, `predict` and `simulate`.

closed_network  steps on parameter servers, solved (demands, step_fit, rules, calibration)
simulation      the same, simulated operation by operation (simulation_errors)
all_reduce      recorded rounds of data-parallel training (round_fit, rounds, schemes, loading, group)
scaling         tables of step times or rates by nodes and GPUs
"""

from .all_reduce import AllReduceModel
from .calibration import fit_network
from .closed_network import TrainingModel, staleness
from .instances import Instance, InstancePlan, curve_of, plan_instances, read_instances
from .predict import fit, load, measured_besides, predict, simulate
from .round_fit import FittedRounds, fit_rounds
from .rounds import round_time
from .rules import order_statistic
from .scaling import ScalingModel, fit_scaling
from .schemes import SCHEMES, Buckets, Fusion, Slices
from .simulated_rounds import SimulatedRounds, plot_round, simulate_rounds
from .simulation import trace_curve, trace_throughput

__all__ = [
    "SCHEMES", "AllReduceModel", "Buckets", "FittedRounds", "Fusion", "Instance",
    "InstancePlan", "ScalingModel", "SimulatedRounds", "Slices", "TrainingModel",
    "curve_of", "fit", "fit_network", "fit_rounds", "fit_scaling", "load", "measured_besides",
    "order_statistic", "plan_instances", "plot_round", "predict", "read_instances", "round_time",
    "simulate", "simulate_rounds", "staleness", "trace_curve", "trace_throughput",
]  # fmt: skip
