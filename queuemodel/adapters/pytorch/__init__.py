"""Data-parallel PyTorch: traces of ``torch.profiler``, and live runs, which load it in their processes."""

from .live import DataParallel
from .traces import SUFFIXES, read_pytorch

__all__ = ["SUFFIXES", "DataParallel", "read_pytorch"]
