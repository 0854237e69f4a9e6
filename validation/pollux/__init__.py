"""The Pollux artifact's simulator (Qiao et al., OSDI 2021) reproduced: evidence, not product.

The artifact publishes job streams, measured step times and what its simulator made of them. `queuemodel` reads the
first two (`.artifact`); here `engine` advances `state` by the artifact's conventions,
asking a `rule`: one of the artifact's `rivals`, or any policy of the package. `replay` runs all of it, and
``python -m validation.pollux`` prints what comes out, beside the published figures to the second. `predict` gives
policies curves from one and two GPUs instead of the measured ones, `batch_sizes` gives jobs some to choose
among.
"""

from .artifact import packed, read_application, read_pollux
from .batch_sizes import application_batch_sizes
from .predict import predicted_curve
from .replay import Replay, read_jobs, replay
from .state import epoch_rates

__all__ = [
    "Replay",
    "application_batch_sizes",
    "epoch_rates",
    "packed",
    "predicted_curve",
    "read_application",
    "read_jobs",
    "read_pollux",
    "replay",
]
