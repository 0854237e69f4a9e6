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
"""

from __future__ import annotations

from functools import cache

import numpy as np

from ..strategies import order_statistic

#: How sharply the longer of backward pass and all-reduce decides; from 3 to 6 hardly any difference.
SHARPNESS = 4.0

#: Degrees of freedom of the law of measurements' errors (Student's).
TAILS = 6

#: Forward share (logit), straggling, all-reduce on two nodes and in one (logarithms), sharing of a link, growth.
PARAMETERS = ("forward", "straggling", "across", "inside", "sharing", "growth")


def step_time(
    parameters: np.ndarray, compute: np.ndarray, nodes: np.ndarray, gpus: np.ndarray, gpus_per_node: np.ndarray
) -> np.ndarray:
    """Seconds of a step, shape (..., n).

    Parameters
    ----------
    parameters : ndarray, shape (..., 6)
        In the order of `PARAMETERS`.
    compute : ndarray, shape (n,)
        Seconds of a step on one GPU.
    nodes, gpus, gpus_per_node : ndarray of int, shape (n,)
    """
    forward, straggling, across, inside, sharing, growth = np.moveaxis(parameters, -1, 0)[..., None]
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
