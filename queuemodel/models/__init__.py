"""From measurements to a prediction: a model for each kind of data, used through `fit`, `predict` and `simulate`.

closed_network  steps on parameter servers, solved
simulation      the same, simulated operation by operation
sharded         rounds of sharded training
rounds          rounds of data-parallel training
scaling         tables of step times or rates by nodes and GPUs
"""

from .closed_network import ClosedNetworkModel, fit_network, order_statistic, staleness
from .instances import Instance, InstancePlan, plan_instances, read_instances
from .predict import curve_of, fit, further_measurements, load, predict, simulate
from .rounds import (
    SCHEMES,
    AllReduceModel,
    Buckets,
    FittedRounds,
    Fusion,
    SimulatedRounds,
    Slices,
    fit_rounds,
    plot_round,
    round_time,
    simulate_rounds,
)
from .scaling import ScalingModel, fit_scaling
from .sharded import ShardedModel, fit_shards
from .simulation import trace_curve, trace_throughput

__all__ = [
    "SCHEMES", "AllReduceModel", "Buckets", "ClosedNetworkModel", "FittedRounds", "Fusion", "Instance", "InstancePlan",
    "ScalingModel", "ShardedModel", "SimulatedRounds", "Slices", "curve_of", "fit", "fit_network", "fit_rounds",
    "fit_scaling", "fit_shards", "further_measurements", "load", "order_statistic", "plan_instances", "plot_round",
    "predict", "read_instances", "round_time", "simulate", "simulate_rounds", "staleness", "trace_curve",
    "trace_throughput",
]  # fmt: skip
