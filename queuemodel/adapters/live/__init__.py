"""Live profiling: processes train for a short while, and what they recorded becomes a profile.

`profile_live` is the one runner; a `Backend` says what a framework adds: its options, which processes to start, and how
their recordings are read. Its processes are followed from here and cannot outlive us; each `child` listens first of all
to its parent and tells it in lines of JSON how far it is. `machine` says where processes meet, and what is
known of its network. No framework is imported here.
"""

from .runner import Backend, EndedEarlyError, Interrupted, RanksBackend, Run, profile_live

__all__ = ["Backend", "EndedEarlyError", "Interrupted", "RanksBackend", "Run", "profile_live"]
