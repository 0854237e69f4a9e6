"""PyTorch: traces of ``torch.profiler``, recording of running jobs, and live runs, which load it in their processes."""

from .injected import FILE, INJECTED, SETTINGS, record_steps
from .live import DataParallel
from .traces import TRACE_SUFFIXES, read_pytorch

__all__ = ["FILE", "INJECTED", "SETTINGS", "TRACE_SUFFIXES", "DataParallel", "read_pytorch", "record_steps"]
