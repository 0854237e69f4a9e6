"""Batch sizes chosen with the nodes, for goodput: a policy of this package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .rank_priced import RankPriced


@dataclass(frozen=True)
class Goodput(RankPriced):
    """`RankPriced` on curves of goodput: each job runs at the batch size that is best on the nodes it gets.

    Goodput is throughput times statistical efficiency (Qiao et al., OSDI 2021). A job whose `BatchSizes` are known is
    seen, and runs, by its goodput at the noise scale of the moment; the policy does not look ahead to how that changes,
    and is not asked when it does. Changing the batch size alone costs no restart. Other jobs are as for `RankPriced`.

    Parameters
    ----------
    exponent, floor : float
        As of `RankPriced`.
    """

    knows: ClassVar[frozenset[str]] = RankPriced.knows | {"batch_sizes"}
