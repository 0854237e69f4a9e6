"""PyTorch: traces of ``torch.profiler``, recording of running jobs, and live runs, which load it in their processes."""

from .injected import INJECTED, RECORD_ENV, TRACE_NAME, record_steps
from .live import DataParallel
from .traces import TRACE_SUFFIXES, read_pytorch

__all__ = ["INJECTED", "RECORD_ENV", "TRACE_NAME", "TRACE_SUFFIXES", "DataParallel", "read_pytorch", "record_steps"]
