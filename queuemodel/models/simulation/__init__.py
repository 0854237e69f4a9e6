"""Steps on parameter servers, simulated operation by operation, and how far that errs."""

from .model import METHOD, NEEDS, SimulationModel, of, refuses, trace_curve, trace_throughput

__all__ = ["METHOD", "NEEDS", "SimulationModel", "of", "refuses", "trace_curve", "trace_throughput"]
