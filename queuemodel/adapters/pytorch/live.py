"""Live runs of data-parallel PyTorch: rank 0 trains alone, then two ranks and more train together over gloo."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass

from ...checks import require_count
from ...errors import DataError, MissingDependencyError
from ...training.profile import Profile
from ..live import RanksBackend, Run
from ..live.machine import interface_to, own_addresses, split_address
from .traces import read_traces


@dataclass(frozen=True, kw_only=True)
class DataParallel(RanksBackend):
    """Ranks of `DistributedDataParallel` over gloo, on this machine or each on its own.

    Attributes
    ----------
    model : str or function
        ``"package.module:function"`` (or the function itself, where a child process can import it) that returns
        ``(module, step)``: a `torch.nn.Module`, and a function that trains the module it is given on one batch (loss,
        backward pass, optimizer) and returns the batch's number of examples.
    ranks : int
        Most to train together: two, three and so on up to these are recorded, each number by itself. Rank 0 decides
        for all.
    steps : int
        To trace, on one rank, on two and so on; likewise.
    warmup : int
        Steps before each recording; two at least, since the first ones fill the buckets anew.
    untraced_steps : int, optional
        Steps after each recording, timed without tracing, which slows them: the profile's throughputs. As many as
        `steps` unless given; 0 for none.
    noise_steps : int
        Steps of all ranks after these, in which each rank's gradient and their mean are measured: the profile's
        gradient noise scale. 0 for none; none is recorded where all ranks train on the same examples.
    master : str, optional
        ``HOST:PORT`` at which rank 0 waits for the others; all on this machine unless given.
    rank : int, optional
        Which one this machine is, below ``ranks``; needed with ``master``. The others send what they recorded to
        rank 0.
    """

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

    def require(self, time_limit: float) -> None:
        if importlib.util.find_spec("torch") is None:
            raise MissingDependencyError("PyTorch is needed here but is not installed: pip install 'queuemodel[torch]'")

    def train(self, run: Run) -> None:
        run.say(run.doing)
        with own_addresses(1) as (own,):
            told = run.settings | {"master": self.master or own}
            environment = self._environment(told["master"])
            run.follow(
                [
                    run.start(f"rank {rank}", f"{__package__}.rank", [json.dumps(told | {"rank": rank})], environment)
                    for rank in self.here
                ]
            )

    def read(self, run: Run) -> Profile | None:
        if 0 not in self.here:
            return None
        folders = [run.traces / f"trace_n{n}" for n in range(1, self.ranks + 1)]
        return read_traces(folders, batch_size=run.job["batch_size"], name=self.model)

    def _environment(self, master: str) -> dict[str, str]:
        """Gloo's own guess at the interface is often wrong; ranks on one machine share its processors."""
        here, environment = len(self.here), {}
        if here > 1:
            environment["OMP_NUM_THREADS"] = str(max(1, len(os.sched_getaffinity(0)) // here))
        if interface := interface_to(master):
            environment["GLOO_SOCKET_IFNAME"] = interface
        return {name: value for name, value in environment.items() if name not in os.environ}
