"""From other tools' recordings to a `Profile`; each tool in a folder of its own, imported only when used.

A tool's reader hands over `TracedStep`s (`events`): operations and transfers, in microseconds of each task's own clock.
`phases.derive` makes the profile's steps of them, with no file format in sight: it refuses copies and mixtures, brings
the tasks onto one clock, and says how long each phase was; `graph` says what waited for what, and merges the operations
that a simulation can move together. Ranks' rounds are put together by `runs`. To add a tool, write its reader. `live`
trains a job for a short while to record it.
"""

from .events import TracedOperation, TracedStep, Transfer
from .phases import derive

__all__ = ["TracedOperation", "TracedStep", "Transfer", "derive"]
