"""TensorFlow, the only place that imports it, and only inside functions.

`reading`: from recorded traces to a `Profile` (`read_traces`). `live`: a parameter server and a worker train for a
short while, and what they record is read (`profile_live`). `children`: the processes that it starts for that, the
models that they train, and `queuemodel serve`. `live` and `children` talk in lines of JSON and share `addresses`;
TensorFlow itself is loaded in the children only.
"""

from .reading import read_run_metadata, read_traces, read_xplane

__all__ = ["read_run_metadata", "read_traces", "read_xplane"]
