"""Live profiling of data-parallel PyTorch: rank 0 trains alone, then two ranks and more train together over gloo.

`profiling.profile_live` is the way in; what its processes (`rank`) say is followed as any framework's ranks are
(`adapters.live`). The others send their traces to rank 0, whose files are then read as anybody's are (`traces`).
"""

from ...live.interrupts import Interrupted
from .profiling import profile_live

__all__ = ["Interrupted", "profile_live"]
