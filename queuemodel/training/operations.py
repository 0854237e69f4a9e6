"""The operations of one profiled step: who did what, when, and what waited for what."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from ..checks import require_choice, require_count, require_number
from ..errors import DataError

Kind = Literal["fetch", "compute", "push", "update"]
KINDS = get_args(Kind)

#: A step longer than this (an hour) is taken for microseconds.
LONGEST_STEP = 3600.0

#: More bytes than this are taken for a mistake; all below are exact as floating point numbers.
MOST_BYTES = 10**15

#: How many parameter servers a job can have.
MOST_SERVERS = 1000


class Operation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One operation of a step (times in seconds from the start of its step).

    Attributes
    ----------
    kind : {"fetch", "compute", "push", "update"}
        A parameter transfer, a computation on the worker, a gradient transfer, or an update on the server.
    name : str
        Of the tensor or of the operation, unique within its step and kind.
    start, end : float
        As recorded. A transfer's interval starts when it is asked for, so it contains waiting for other transfers.
    bytes : int
        Payload of a transfer, 0 otherwise.
    server : int
        Index of the parameter server that a transfer or update belongs to.
    after : list of int
        Indices, in the step's list, of the operations that must end before this one can start.
    """

    kind: Kind
    name: str
    start: float
    end: float
    bytes: int = 0
    server: int = 0
    after: list[int] = []

    def __post_init__(self) -> None:
        where = f"operation {self.name!r}"
        require_choice(self.kind, f"{where}: kind", KINDS, error=DataError)
        for field in ("start", "end"):
            require_number(
                getattr(self, field), f"{where}: {field}", unit="seconds", largest=LONGEST_STEP, error=DataError
            )
        if self.start > self.end:
            raise DataError(f"{where}: end must not be before its start, {self.start!r} s, got {self.end!r} s")
        require_count(self.bytes, f"{where}: bytes", least=0, most=MOST_BYTES, error=DataError)
        require_count(self.server, f"{where}: server", least=0, most=MOST_SERVERS - 1, error=DataError)
