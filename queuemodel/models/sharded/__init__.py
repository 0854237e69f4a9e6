"""Rounds of sharded training (FSDP, ZeRO-3, HSDP).

placement  ranks on nodes and in copies of the model, and how long a round of theirs takes
rewritings other ways of training as changes of a round's graph
fit        the graph of a round, its computations, and what the network carries
model      the model, its what-ifs, parameters and notes
"""

from .fit import FittedShards, fit_shards
from .model import METHOD, NEEDS, ShardedModel, of, refuses
from .placement import RankPlacement, TimedTask, round_times

__all__ = [
    "METHOD", "NEEDS", "FittedShards", "RankPlacement", "ShardedModel", "TimedTask", "fit_shards", "of", "refuses",
    "round_times",
]  # fmt: skip
