"""The names of the package that are promised to users, gathered from the folders."""

from .convergence import Convergence, NoiseScale, fit_convergence, noise_scale
from .errors import (
    DataError,
    FitError,
    MissingDependencyError,
    ModelError,
    ProfilingError,
    QueueModelError,
    QueueModelWarning,
)
from .instances import Instance, InstancePlan, plan_instances, read_instances
from .network import JobClass, Network, PhaseType, Solution, Station, read_jmva, write_jmva
from .placements import PlacedStep, PlacementModel, fit_placements, read_placements
from .prediction import load, predict
from .solvers import (
    ApproximateMVA,
    BatchSolution,
    Bounds,
    ExactMVA,
    MarkovChain,
    Sensitivity,
    Simulation,
    SimulationResult,
    SymbolicSolution,
    barrier_time,
    bounds,
    knee_throughput,
    knee_width,
    marginal_distribution,
    saturation_population,
    sensitivity,
    solve,
    solve_batch,
    solve_symbolic,
)
from .strategies import fit, simulate
from .training import (
    Cluster,
    GrowthModel,
    Job,
    NextMeasurement,
    Operation,
    Parameter,
    Plan,
    Profile,
    Scenario,
    Source,
    Step,
    Throughput,
    ThroughputCurve,
    TrainingModel,
    next_measurement,
    plan,
    read_throughputs,
)

__all__ = [
    "ApproximateMVA", "BatchSolution", "Bounds", "Cluster", "Convergence", "DataError", "ExactMVA", "FitError",
    "GrowthModel", "Instance", "InstancePlan", "Job", "JobClass", "MarkovChain", "MissingDependencyError",
    "ModelError", "Network", "NextMeasurement", "NoiseScale", "Operation", "Parameter", "PhaseType", "PlacedStep",
    "PlacementModel", "Plan", "Profile", "ProfilingError", "QueueModelError", "QueueModelWarning", "Scenario",
    "Sensitivity", "Simulation", "SimulationResult", "Solution", "Source", "Station", "Step", "SymbolicSolution",
    "Throughput", "ThroughputCurve", "TrainingModel", "barrier_time", "bounds", "fit", "fit_convergence",
    "fit_placements", "knee_throughput", "knee_width", "load", "marginal_distribution", "next_measurement",
    "noise_scale", "plan", "plan_instances", "predict", "read_instances", "read_jmva", "read_placements",
    "read_throughputs", "saturation_population", "sensitivity", "simulate", "solve", "solve_batch",
    "solve_symbolic", "write_jmva",
]  # fmt: skip
