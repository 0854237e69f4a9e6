"""Live runs of data-parallel PyTorch: rank 0 trains alone, then two ranks and more train together over gloo."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from ...base.checks import require_count
from ...base.errors import DataError
from ...profile.profile import Profile
from ..live.machine import interface_to, own_addresses, split_address
from ..live.runner import RanksBackend, Run
from .traces import read_traces


@dataclass(frozen=True, kw_only=True)
class DataParallel(RanksBackend):
    """Ranks of `DistributedDataParallel` over gloo, on this machine or each on its own.

    The model's function returns ``(module, step)``: a `torch.nn.Module`, and a function that trains the module it is
    given on one batch (loss, backward pass, optimizer) and returns the batch's number of examples. Of one rank, of two
    and so on up to ``ranks``, each by itself, ``steps`` are traced, after ``warmup`` (two at least, since the first
    ones fill the buckets anew) and before ``untraced_steps``. Rank 0 waits at ``master``, a ``HOST:PORT``, for the
    others, and decides for all; this machine is ``rank``, or runs all of them where neither is given. The others send
    what they recorded to rank 0. No noise scale is recorded where all ranks train on the same examples.
    """

    framework = "torch"
    master: str | None = None
    rank: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.master is None and self.rank is None:
            return
        if self.master is None or self.rank is None:
            given, missing = ("rank", "master") if self.master is None else ("master", "rank")
            raise DataError(f"{given}: give {missing} too, or neither to train all ranks here")
        split_address(self.master, where="master")
        if require_count(self.rank, "rank", least=0, error=DataError) >= self.ranks:
            raise DataError(f"rank: {self.rank} is not among {self.ranks} ranks, which begin at 0; give more ranks")
        interface_to(self.master)

    @property
    def here(self) -> Sequence[int]:
        return range(self.ranks) if self.rank is None else (self.rank,)

    def train(self, run: Run) -> None:
        run.say(run.doing)
        with own_addresses(1) as (own,):
            master = self.master or own
            environment, module = self._environment(master), f"{__package__}.rank"
            run.follow([run.start(f"rank {n}", module, environment, master=master, rank=n) for n in self.here])

    def read(self, run: Run) -> Profile | None:
        if 0 not in self.here:
            return None
        folders = [run.traces / f"trace_n{n}" for n in range(1, self.ranks + 1)]
        return read_traces(folders, batch_size=run.job["batch_size"], name=self.model)

    def _environment(self, master: str) -> dict[str, str]:
        """Gloo's own guess at the interface is often wrong; ranks on one machine share its processors."""
        threads = str(max(1, len(os.sched_getaffinity(0)) // len(self.here))) if len(self.here) > 1 else None
        found = {"OMP_NUM_THREADS": threads, "GLOO_SOCKET_IFNAME": interface_to(master)}
        return {name: value for name, value in found.items() if value and name not in os.environ}
