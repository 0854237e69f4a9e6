"""Steps on parameter servers, simulated operation by operation, and how far that errs."""

from .model import SimulationModel, trace_curve, trace_throughput

__all__ = ["SimulationModel", "trace_curve", "trace_throughput"]
