"""TensorFlow, the only place that imports it, and only inside functions of child processes.

Reading needs protobuf only (`protos`): `run_metadata` (TensorFlow 1 sessions) and `xplane` (`tf.profiler`) make
`TracedStep`s of files, `traces` a `Profile` of these; `mirrored` makes one of the files of data-parallel ranks. `live`:
what trains a model for a short while, for `adapters.live.profile_live`; its processes, the models that they train and
`queuemodel serve` are in `children`.
"""

from .live import Mirrored, ParameterServer
from .mirrored import is_mirrored, read_mirrored
from .traces import read_traces

__all__ = ["Mirrored", "ParameterServer", "is_mirrored", "read_mirrored", "read_traces"]
