"""How many examples training needs to reach its target, by batch size: the other half of the time to a loss.

critical_batch  the law, what it misses, and their posterior given measured batch sizes
prior           what both were like on public benchmarks (convergence_prior.json)
read            seeds from a table
fit             from seeds at a few batch sizes to examples at any, with intervals; drawn by figures
"""

from .fit import Convergence, fit_convergence, relative_convergence
from .gradient_noise import NoiseScale, noise_scale
from .read import read_convergence

__all__ = ["Convergence", "NoiseScale", "fit_convergence", "noise_scale", "read_convergence", "relative_convergence"]
