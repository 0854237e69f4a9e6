"""Live profiling of `MultiWorkerMirroredStrategy`: rank 0 trains alone, then two ranks and more do with the ring.

`profiling.profile_live` is the way in; what its processes (`rank`) say is followed as any framework's ranks are
(`adapters.live`), and their recordings are read as anybody's are (`reading.mirrored`).
"""

from ...live.interrupts import Interrupted
from .profiling import profile_live

__all__ = ["Interrupted", "profile_live"]
