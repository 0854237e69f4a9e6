"""The operations of one profiled step: who did what, when, and what waited for what."""

from __future__ import annotations

from typing import Literal

import msgspec

from ..errors import DataError

Kind = Literal["fetch", "compute", "push", "update"]


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
        if not 0 <= self.start <= self.end < 7 * 24 * 3600:
            raise DataError(
                f"operation {self.name!r}: start and end must satisfy 0 <= start <= end seconds of their step, "
                f"got {self.start!r} and {self.end!r}"
            )
        if self.bytes < 0 or self.server < 0:
            raise DataError(f"operation {self.name!r}: bytes and server must be >= 0, got {self.bytes}, {self.server}")
