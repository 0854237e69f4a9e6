"""TensorFlow: readers of its recordings, which need protobuf only, and live runs, which load it in their processes."""

from .live import Mirrored, ParameterServer, run_server
from .mirrored import is_mirrored, read_mirrored
from .traces import read_tensorflow

__all__ = ["Mirrored", "ParameterServer", "is_mirrored", "read_mirrored", "read_tensorflow", "run_server"]
