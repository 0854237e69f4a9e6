"""TensorFlow: reading its traces, and profiling it live; the only place that imports it, inside functions."""

from .run_metadata import read_run_metadata
from .traces import read_traces
from .xplane import read_xplane

__all__ = ["read_run_metadata", "read_traces", "read_xplane"]
