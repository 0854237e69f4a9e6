"""Sizes of the tensors that `tf.profiler` saw travel: it notes only those of large ones."""

from __future__ import annotations

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from ....checks import require_count
from ....errors import DataError
from ....files import read_bytes
from ....training.operations import MOST_BYTES

#: What a live run notes beside its recordings: `Noted`, as JSON.
FILE = "tensor_sizes.json"

FOLDED = "ConstantFolding"  # waits for a tensor without using its values
CONTROL = re.compile(  # say "done" or "go" and carry nothing
    r"GroupCrossDeviceControlEdges.*|.*/pivot_[tf]/_\d+|(.*/)?(LoopCond|LoopExecuted|loop_body_control)/_\d+"
)
INLINED = re.compile(r".*/(then|else|body|cond)/_\d+/")  # before the names within a function
ARGUMENT = re.compile(r"Func/.*/input/_\d+")  # handed to a function

SMALL = 2**18 - 1  # bytes: TensorFlow records how much was allocated from 256 KiB on


@dataclass(frozen=True)
class Send:
    """A tensor on its way: from ``start`` (us) to the operation ``receiver``, used by ``consumer``."""

    tensor: str
    source: str
    destination: str
    receiver: str
    consumer: str
    start: int


Key = tuple[str, str]  # of a tensor that travels: the operation that receives it, and its task


@dataclass(frozen=True)
class Noted:
    """What a live run knows of its training step's graph (`children.graph_sizes`), and the bytes of all parameters."""

    outputs: Mapping[str, list[int | None] | None] = field(default_factory=dict)
    arguments: Mapping[str, int | None] = field(default_factory=dict)
    parameter_bytes: int | None = None

    @classmethod
    def beside(cls, folder: str | os.PathLike[str]) -> Noted:
        """Read it from a folder of recordings; empty where nothing was noted."""
        path = Path(folder, FILE)
        if not path.exists():
            return cls()
        try:
            noted = cls(**json.loads(read_bytes(path)))
            sizes = [*chain(*filter(None, noted.outputs.values())), *noted.arguments.values(), noted.parameter_bytes]
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(f"{path}: not what 'queuemodel profile' writes ({error}); remove it") from None
        for size in sizes:
            if size is not None:
                require_count(size, f"{path}: sizes", least=0, most=MOST_BYTES, error=DataError)
        return noted

    def of(self, sends: list[Send]) -> list[int | None]:
        """
        Bytes of what one operation sends to one task; None where not known.

        Every output travels once; what is sent beyond that only says "done". How many outputs an operation has that
        is not noted is not known: whatever waits for values may have got one of its own.
        """
        name = sends[0].tensor
        if ARGUMENT.fullmatch(name):
            outputs: list[int | None] = [self.arguments.get(INLINED.sub("", sends[0].consumer))]
        else:
            outputs = self.outputs.get(name) or self.outputs.get(INLINED.sub("", name)) or []
        if not outputs:
            return [None, *(0 if s.consumer.startswith(FOLDED) else None for s in sends[1:])]
        if len(sends) < len(outputs) and len(set(outputs)) > 1:  # which of them?
            return [None] * len(sends)
        return [*outputs, *[0] * len(sends)][: len(sends)]


def transfer_sizes(
    sends: Iterable[Send],
    *,
    received: Mapping[Key, Counter[int]],
    noted: Noted,
    where: str,
    rows: Collection[Key] = (),
) -> dict[Key, int]:
    """
    Bytes of every tensor sent.

    As a live run noted them, else as the receiver allocated. What neither tells: fetched tensors share what is left of
    the parameters' bytes equally; a pushed one, or rows, are taken to be as large as the small fetched ones are on
    average, a gradient being as large as its parameter.

    Parameters
    ----------
    sends : iterable of Send
        Those of one step.
    received : mapping of (str, str) to Counter
        The sizes that each receiver allocated; 0 for those too small to be recorded.
    noted : Noted
    rows : collection of (str, str)
        What servers look up or compute instead of sending a parameter as it is.

    Raises
    ------
    DataError
        Where sizes are missing and the bytes of all parameters are not known, or more than these tensors can have.
    """
    allocated = {key: most for key, counts in received.items() if (most := counts.most_common(1)[0][0]) > 0}
    sizes: dict[Key, int | None] = {}
    routes: dict[Key, tuple[bool, bool]] = {}  # from a server, to a server
    for some in _by_operation(sends):
        for s, known in zip(some, noted.of(some), strict=True):
            key = s.receiver, s.destination
            routes[key] = s.source.startswith("ps:"), s.destination.startswith("ps:")
            nothing = CONTROL.fullmatch(s.tensor) or routes[key] == (True, True)  # servers send each other small change
            sizes[key] = allocated.get(key, 0 if nothing else None) if known is None or nothing else known
    unknown = sorted(key for key, size in sizes.items() if size is None)
    if unknown and noted.parameter_bytes is None:
        raise DataError(
            f"{where}: the sizes of {len(unknown)} of {len(sizes)} tensors are not in the trace (first: "
            f"{unknown[0][0]!r}); give parameter_bytes, the size of all parameters together"
        )
    fetched = [key for key, route in routes.items() if route == (True, False)]
    shared = [key for key in unknown if key in fetched and key not in rows]
    seen = sum(sizes[key] or 0 for key in fetched if key not in rows)
    left = max((noted.parameter_bytes or 0) - seen, 0)
    if shared and left > len(shared) * SMALL:
        raise DataError(
            f"{where}: parameter_bytes is {noted.parameter_bytes:,}, but the parameters that are fetched have {seen:,} "
            f"and at most {SMALL:,} in each of {len(shared)} small tensors; leave out what is not fetched whole, such "
            "as tables in which the servers look up rows"
        )
    for i, key in enumerate(shared):
        sizes[key] = left * (i + 1) // len(shared) - left * i // len(shared)
    small = [given for key in fetched if key not in allocated and (given := sizes[key])]
    usual = round(sum(small) / len(small)) if small else 0
    return {key: usual if size is None else size for key, size in sizes.items()}


def _by_operation(sends: Iterable[Send]) -> Iterable[list[Send]]:
    """What each operation sends to each task, each receiver once; what is used before what is only waited for."""
    groups: dict[Key, dict[str, Send]] = defaultdict(dict)
    for s in sorted(sends, key=lambda s: (s.consumer.startswith(FOLDED), len(s.receiver), s.receiver)):
        groups[s.tensor, s.destination].setdefault(s.receiver, s)
    return [list(group.values()) for group in groups.values()]
