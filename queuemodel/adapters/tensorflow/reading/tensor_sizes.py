"""Sizes of the tensors that `tf.profiler` saw travel: it notes only those of large ones."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from ....checks import require_count
from ....errors import DataError
from ....files import read_bytes
from ....training.operations import MOST_BYTES
from .xplane_task import Send

#: Beside a live run's recordings: bytes of each tensor of the training step's graph, and of all parameters.
FILE = "tensor_sizes.json"

FOLDED = "ConstantFolding"  # waits for a tensor without using its values
CONTROL = "GroupCrossDeviceControlEdges"  # says "done" and carries nothing


def known_sizes(folder: str | os.PathLike[str]) -> tuple[dict[str, int], int | None]:
    """What a live run noted: bytes by tensor, and of all parameters; nothing where there is no such file."""
    path = Path(folder, FILE)
    if not path.exists():
        return {}, None
    try:
        noted = json.loads(read_bytes(path))
        sizes, parameters = dict(noted["tensors"]), noted["parameter_bytes"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: not what 'queuemodel profile' writes ({error!r}); remove it") from None
    for name, size in [("parameter_bytes", parameters), *sizes.items()]:
        require_count(size, f"{path}: {name}", least=0, most=MOST_BYTES, error=DataError)
    return sizes, parameters


def transfer_sizes(
    sends: Iterable[Send],
    *,
    received: Mapping[tuple[str, str], Counter[int]],
    noted: Mapping[str, int],
    parameter_bytes: int | None,
    where: str,
) -> dict[tuple[str, str], int]:
    """
    Bytes of every tensor sent, by receiving operation and task.

    As a live run noted them, else as the receiver allocated. What neither tells: fetched tensors share what is left of
    ``parameter_bytes`` equally; a pushed one is taken to be as large as the small fetched ones are on average, a
    gradient being as large as its parameter.

    Parameters
    ----------
    sends : iterable of Send
        Those of one step.
    received : mapping of (str, str) to Counter
        The sizes that each receiver allocated; 0 for those too small to be recorded.
    noted : mapping of str to int
        From `known_sizes`.

    Raises
    ------
    DataError
        Where sizes are missing and ``parameter_bytes`` is not given.
    """
    sends = list(sends)
    allocated = {key: size for key, counts in received.items() if (size := counts.most_common(1)[0][0])}
    fetched = [s for s in sends if s.source.startswith("ps:") and not s.destination.startswith("ps:")]
    pushed = [s for s in sends if not s.source.startswith("ps:") and s.destination.startswith("ps:")]
    keys = [(s.receiver, s.destination) for s in sends]
    sizes = {key: allocated.get(key, 0) for key in keys}  # servers send each other small change
    unknown: dict[str, list[tuple[str, str]]] = {}
    for route, some in (("fetched", fetched), ("pushed", pushed)):
        data = _with_data(some)
        sizes |= {key: noted[tensor] for key, tensor in data.items() if tensor in noted}
        unknown[route] = sorted(key for key, tensor in data.items() if tensor not in noted and key not in allocated)
    if parameter_bytes is None and (missing := unknown["fetched"] + unknown["pushed"]):
        raise DataError(
            f"{where}: the sizes of {len(missing)} of {len(sizes)} tensors are not in the trace (first: "
            f"{missing[0][0]!r}); give parameter_bytes, the size of all parameters together"
        )
    left = max((parameter_bytes or 0) - sum(sizes[key] for key in {(s.receiver, s.destination) for s in fetched}), 0)
    for i, key in enumerate(unknown["fetched"]):
        share = len(unknown["fetched"])
        sizes[key] = left * (i + 1) // share - left * i // share
    small = [sizes[key] for key in _with_data(fetched) if key not in allocated]
    for key in unknown["pushed"]:
        sizes[key] = round(sum(small) / len(small)) if small else 0
    return sizes


def _with_data(sends: Iterable[Send]) -> dict[tuple[str, str], str]:
    """Tensor by receiver, without control messages: of two sent from one operation, the second only says "done"."""
    data: dict[tuple[str, str], Send] = {}
    for s in sorted(sends, key=lambda s: (s.consumer.startswith(FOLDED), len(s.receiver), s.receiver)):
        data.setdefault((s.tensor, s.destination), s)
    return {(s.receiver, s.destination): s.tensor for s in data.values() if not s.tensor.startswith(CONTROL)}
