"""From other tools' recordings to a `Profile`; each tool has a folder of its own, imported only when used.

A reader returns `TracedStep`s, of which `derive` makes the profile's steps, or ranks' rounds; `live` records a job.
"""

from .live import Backend, EndedEarlyError, Interrupted, RanksBackend, profile_live
from .phases import derive
from .pytorch import DataParallel, read_pytorch, record_steps
from .recordings import TracedOperation, TracedStep, Transfer
from .tensorflow import Mirrored, ParameterServer, read_mirrored, read_tensorflow

__all__ = [
    "Backend", "DataParallel", "EndedEarlyError", "Interrupted", "Mirrored", "ParameterServer", "RanksBackend",
    "TracedOperation", "TracedStep", "Transfer", "derive", "profile_live", "read_mirrored", "read_pytorch",
    "read_tensorflow", "record_steps",
]  # fmt: skip
