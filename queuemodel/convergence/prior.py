"""What critical batches were like on public benchmarks.

The numbers are in convergence_prior.json beside this module, with their sources; ``python -m validation.convergence
--learn`` makes them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

import numpy as np

from ..checks import MOST_EXAMPLES, require_number
from .gradient_noise import NoiseScale

#: Between which the logarithm of the critical batch in smallest measured batches lies: 1/20 to 8,000 of them.
LOG_LIMITS = (-3.0, 9.0)

#: How far the noise scale is from the critical batch: half an order of magnitude either way (assumed after McCandlish
#: et al., who find agreement within one).
NOISE_SCALE_SPREAD = 0.5 * float(np.log(10.0))

#: Chance that a job is unlike the benchmarks, and how many times wider critical batches spread then (assumed).
STRAY, STRAY_SPREAD = 0.1, 3.0


@dataclass(frozen=True, slots=True)
class ConvergencePrior:
    """Distributions over jobs.

    Attributes
    ----------
    centre, spread : float
        Mean and standard deviation of the logarithm of the critical batch, in smallest measured batches.
    deviations : dict
        Relative standard deviations of what the law misses, and the share of jobs with each.
    """

    centre: float
    spread: float
    deviations: dict[float, float]

    def knowing(self, noise_scale: float | NoiseScale, batch_size: int) -> ConvergencePrior:
        """The prior after the gradients' noise was seen, in a job whose smallest measured batch is ``batch_size``."""
        if not isinstance(noise_scale, NoiseScale):
            noise_scale = NoiseScale.exactly(
                require_number(noise_scale, "noise_scale", unit="examples", positive=True, largest=MOST_EXAMPLES)
            )
        with np.errstate(divide="ignore"):
            log_ratio = np.clip(np.log(noise_scale.draws / batch_size), *LOG_LIMITS)
        spread = float(np.hypot(NOISE_SCALE_SPREAD, log_ratio.std()))
        share = self.spread**2 / (self.spread**2 + spread**2)
        centre = self.centre + share * (float(log_ratio.mean()) - self.centre)
        return replace(self, centre=centre, spread=spread * share**0.5)

    def log_density(self, log_ratio: np.ndarray) -> np.ndarray:
        """Of the logarithm of the critical batch in smallest batches, up to a constant."""
        x = (log_ratio - self.centre) / self.spread
        wide = np.exp(-0.5 * (x / STRAY_SPREAD) ** 2) / STRAY_SPREAD
        return np.log((1.0 - STRAY) * np.exp(-0.5 * x**2) + STRAY * wide)


@cache
def convergence_prior() -> ConvergencePrior:
    """The prior that comes with the package."""
    told = json.loads((resources.files(__package__) / "convergence_prior.json").read_text(encoding="utf-8"))
    deviations = {float(value): share for value, share in told["deviations"].items()}
    return ConvergencePrior(told["centre"], told["spread"], deviations)
