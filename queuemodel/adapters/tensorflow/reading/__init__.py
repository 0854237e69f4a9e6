"""Reading what TensorFlow recorded.

`run_metadata` (TensorFlow 1 sessions) and `xplane` (`tf.profiler`; `tensor_sizes` beside it) each make `TracedStep` of
files (`messages`), the form that the parent folder turns into phases and graphs. `traces` puts them together: from a
folder, without doubles and mixtures, to a `Profile`. `mirrored` makes one of the files of data-parallel ranks.
"""

from .mirrored import is_mirrored, read_mirrored
from .traces import read_traces

__all__ = ["is_mirrored", "read_mirrored", "read_traces"]
