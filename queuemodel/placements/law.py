"""How long a synchronous data-parallel step takes on N GPUs that stand on k nodes, g of them on the fullest.

    T = f c + ((1 - f) c ⊕ m),    c = C (1 + s E_N),    x ⊕ y = (x^γ + y^γ)^(1/γ), γ = 4

C is the step on one GPU with the same batch, E_N the mean of the largest of N standard normal numbers: the group waits
for its slowest GPU, s being the spread of a step relative to its mean. The forward pass, a share f, comes first;
behind the backward pass the all-reduce hides, for as long as that lasts (a smooth maximum, as in A. Qiao et al.,
"Pollux", OSDI 2021, who take f = 0 and fit γ). One ring through all GPUs carries 2 (N - 1)/N of the gradients across
every link (Patarasuk and Yuan, 2009), so that with r(n) = 2 (n - 1)/n

    m = L r(N)                              on one node,
    m = W (k/2)^p  r(N)/r(k)  g^a           on several:

W is the all-reduce between two nodes of one GPU each, a says how far the GPUs of a node are in each other's way at its
link, and p how the all-reduce grows with the nodes. Two nodes cannot tell p. A pipelined tree would have p = 0; a ring
takes 1.9 times as long on sixteen nodes as on two, which is p = 0.3, though most of it between two and four; latencies
and stragglers on the network go on growing.

Before it stand measured steps and their table.
"""

from __future__ import annotations

import os
from functools import cache

import msgspec
import numpy as np

from ..checks import MOST_EXAMPLES, require_count, require_number
from ..errors import DataError
from ..files import read_bytes
from ..rows import Row, read_rows
from ..strategies import order_statistic

#: GPUs of a job, and seconds of a step: nobody has more, or waits longer.
MOST_GPUS, LONGEST_STEP = 10_000, 1e6


class PlacedStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A measured mean step time of a synchronous data-parallel job.

    Attributes
    ----------
    nodes : int
    gpus : int
        On all nodes together.
    batch_size : int
        Examples per GPU and step.
    step_time : float
        Seconds.
    gpus_per_node : int
        On the node that has most of them; as even as can be, unless given.

    Raises
    ------
    DataError
        When the GPUs cannot stand on the nodes like that, or a number is none.
    """

    nodes: int
    gpus: int
    batch_size: int
    step_time: float
    gpus_per_node: int = 0

    def __post_init__(self) -> None:
        require_count(self.nodes, "nodes", most=MOST_GPUS, error=DataError)
        require_count(self.gpus, "gpus", least=self.nodes, most=MOST_GPUS, error=DataError)
        require_count(self.batch_size, "batch_size", most=MOST_EXAMPLES, error=DataError)
        require_number(
            self.step_time, "step_time", positive=True, largest=LONGEST_STEP, unit="seconds", error=DataError
        )
        even = -(-self.gpus // self.nodes)
        if self.gpus_per_node:
            most = self.gpus - self.nodes + 1  # every node has one at least
            require_count(self.gpus_per_node, "gpus_per_node", least=even, most=most, error=DataError)
        msgspec.structs.force_setattr(self, "gpus_per_node", self.gpus_per_node or even)


def read_placements(path: str | os.PathLike[str]) -> list[PlacedStep]:
    """Read measured step times from a CSV with the columns ``nodes,gpus,batch_size,step_time[,gpus_per_node]``.

    Returns
    -------
    list of PlacedStep
        In the order of the file.

    Raises
    ------
    DataError
        One line that names the file, the line, the column and the value.
    """
    columns = ("nodes", "gpus", "batch_size", "step_time")
    rows = read_rows(path, required=columns, optional=("gpus_per_node",), what="measurements")
    return [_placed(row) for row in rows]


def holds_placements(path: str | os.PathLike[str]) -> bool:
    """Whether a table's header names step times, and not of numbers of workers."""
    header, *_ = read_bytes(path).splitlines()
    return b"step_time" in header and b"workers" not in header


def _placed(row: Row) -> PlacedStep:
    values = {name: row.count(name) for name in ("nodes", "gpus", "batch_size")}
    share = row.count("gpus_per_node") if row.given("gpus_per_node") else 0
    try:
        return PlacedStep(**values, step_time=row.number("step_time"), gpus_per_node=share)
    except DataError as error:
        raise DataError(f"{row.where}: {error}") from None


def span(batch_size: np.ndarray) -> str:
    """The smallest and the largest, for messages."""
    first, last = batch_size[[0, -1]]
    return f"{first}" if first == last else f"{first} to {last}"


#: How sharply the longer of backward pass and all-reduce decides; from 3 to 6 hardly any difference.
SHARPNESS = 4.0

#: Degrees of freedom of the law of measurements' errors (Student's).
TAILS = 6

#: Of n placements: weights of the steps on one GPU with the measured batch sizes, shape (n, sizes); nodes, GPUs, and
#: GPUs on the fullest node, shape (n,).
Shapes = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def shapes(
    sizes: np.ndarray, nodes: np.ndarray, gpus: np.ndarray, gpus_per_node: np.ndarray, batch_size: np.ndarray
) -> Shapes:
    """What a step's time depends on, where one GPU was measured with batches of these sizes; linear between them."""
    weights = np.column_stack([np.interp(batch_size, sizes, unit) for unit in np.eye(len(sizes))])
    return weights, nodes, gpus, gpus_per_node


def step_time(parameters: np.ndarray, placed: Shapes) -> np.ndarray:
    """Seconds of a step, shape (..., n).

    Parameters, shape (..., sizes + 6): logarithms of the steps on one GPU, the forward share (logit), straggling,
    all-reduce on two nodes and in one (logarithms), sharing of a link, growth.
    """
    weights, nodes, gpus, gpus_per_node = placed
    alone, law = np.split(parameters, [weights.shape[1]], axis=-1)
    forward, straggling, across, inside, sharing, growth = np.moveaxis(law, -1, 0)[..., None]
    compute = np.exp(alone) @ weights.T
    share = 1.0 / (1.0 + np.exp(-forward))
    computed = compute * (1.0 + np.exp(straggling) * _largest(gpus))
    several = np.maximum(nodes, 2)
    between = np.exp(across) * (several / 2) ** growth * _ring(gpus) / _ring(several) * gpus_per_node**sharing
    reduced = np.where(nodes > 1, between, np.exp(inside) * _ring(gpus))
    hidden = (1.0 - share) * computed
    return share * computed + (hidden**SHARPNESS + reduced**SHARPNESS) ** (1 / SHARPNESS)


def _ring(n: np.ndarray) -> np.ndarray:
    return 2.0 * (n - 1) / n


def _largest(n: np.ndarray) -> np.ndarray:
    sizes, at = np.unique(n, return_inverse=True)
    return np.array([_largest_of(int(size)) for size in sizes])[at]


@cache
def _largest_of(n: int) -> float:
    from scipy.special import ndtri

    return order_statistic(lambda p: -ndtri(p), n, n)
