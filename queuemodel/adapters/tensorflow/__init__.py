"""TensorFlow, the only place that imports it, and only inside functions of child processes.

`reading`: from recorded traces to a `Profile` (`read_traces`, `read_mirrored`). `live`: what trains a model for a short
while (`ParameterServer`, `Mirrored`), for `adapters.live.profile_live`; its processes, the models that they train and
`queuemodel serve` are in `children`.
"""

from .live import Mirrored, ParameterServer
from .reading import is_mirrored, read_mirrored, read_traces

__all__ = ["Mirrored", "ParameterServer", "is_mirrored", "read_mirrored", "read_traces"]
