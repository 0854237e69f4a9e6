"""Reading what ``torch.profiler`` recorded of data-parallel training; needs no PyTorch.

`traces` finds the ranks' files of one run or several and puts them together to a `Profile`; `chrome` reads one file.
`live` records such files itself, of a function like those in `examples`; PyTorch is loaded in its processes (`rank`).
"""

from .live import DataParallel
from .traces import SUFFIXES, read_traces

__all__ = ["SUFFIXES", "DataParallel", "read_traces"]
