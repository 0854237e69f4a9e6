"""TensorFlow, the only place that imports it, and only inside functions.

`reading`: from recorded traces to a `Profile` (`read_traces`, `read_mirrored`). `live`: a parameter server and a worker
train for a short while, and what they record is read (`profile_live`); `mirrored`: the same with data-parallel ranks.
`children`: the processes that `live` starts for that, the models that they train, and `queuemodel serve`. All talk in
lines of JSON and share `addresses` and `environment`; TensorFlow itself is loaded in the processes only.
"""

from .reading import is_mirrored, read_mirrored, read_run_metadata, read_traces, read_xplane

__all__ = ["is_mirrored", "read_mirrored", "read_run_metadata", "read_traces", "read_xplane"]
