"""Reading what TensorFlow recorded.

`folder` says which files a folder of recordings holds, and refuses doubles and mixtures. `run_metadata` (TensorFlow 1
sessions) and `xplane` (`tf.profiler`; `xplane_events` and `xplane_task` below it, `tensor_sizes` beside it) each make
`TracedStep` of them, the form that the parent folder turns into phases and graphs. `traces` puts the three together:
from a folder to a `Profile`.

Data-parallel training has files of ranks instead: `mirrored` makes a `Profile` of them, on `xplane_rounds`.
"""

from .mirrored import is_mirrored, read_mirrored
from .run_metadata import read_run_metadata
from .traces import read_traces
from .xplane import read_xplane

__all__ = ["is_mirrored", "read_mirrored", "read_run_metadata", "read_traces", "read_xplane"]
