"""Live profiling: a parameter server and a worker train for a short while, traced.

`profiling.profile_live` is the way in. `plan` checks what is asked; `run` starts the `children` with what
`adapters.live` shares, follows what they say and ends them; Ctrl-C and its like are noted, so that what is recorded is
saved first. The traces that the run leaves are read as anybody's are (`reading`), and `outcome` says how it ended.
"""

from ...live.interrupts import Interrupted
from .outcome import EndedEarlyError
from .profiling import profile_live

__all__ = ["EndedEarlyError", "Interrupted", "profile_live"]
