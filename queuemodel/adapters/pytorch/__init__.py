"""Data-parallel PyTorch: `traces` of ``torch.profiler``, and `live` runs, in whose processes only it is loaded.

`examples` shows what a live run trains.
"""

from .live import DataParallel
from .traces import SUFFIXES, read_pytorch

__all__ = ["SUFFIXES", "DataParallel", "read_pytorch"]
