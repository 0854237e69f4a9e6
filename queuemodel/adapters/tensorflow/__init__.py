"""TensorFlow: readers of what it recorded, which need protobuf only, and `live` runs.

`traces` reads parameter servers' files and `mirrored` data-parallel ranks', by the messages of `protos`. TensorFlow is
loaded only in the processes of live runs: `session` and `strategies` train `models`.
"""

from .live import Mirrored, ParameterServer, run_server
from .mirrored import is_mirrored, read_mirrored
from .traces import read_tensorflow

__all__ = ["Mirrored", "ParameterServer", "is_mirrored", "read_mirrored", "read_tensorflow", "run_server"]
