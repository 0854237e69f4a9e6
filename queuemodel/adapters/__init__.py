"""From other tools' recordings to a `Profile`; each tool in a folder of its own, imported only when used.

A reader hands over `TracedStep`s (`recordings`): operations and transfers, in microseconds of each task's own clock.
`phases.derive` makes the profile's steps of them, with no file format in sight: it refuses copies and mixtures, brings
the tasks onto one clock, and says how long each phase was; `graph` says what waited for what, and merges the operations
that a simulation can move together. Readers of ranks' files hand over rounds. `live` trains a job for a short while to
record it, in `processes` of its own. To add a tool, write its reader.
"""

from .live import Backend, EndedEarlyError, Interrupted, RanksBackend, profile_live
from .phases import derive
from .pytorch import DataParallel, read_pytorch
from .recordings import TracedOperation, TracedStep, Transfer
from .tensorflow import Mirrored, ParameterServer, read_mirrored, read_tensorflow

__all__ = [
    "Backend",
    "DataParallel",
    "EndedEarlyError",
    "Interrupted",
    "Mirrored",
    "ParameterServer",
    "RanksBackend",
    "TracedOperation",
    "TracedStep",
    "Transfer",
    "derive",
    "profile_live",
    "read_mirrored",
    "read_pytorch",
    "read_tensorflow",
]
