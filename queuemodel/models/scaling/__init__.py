"""One model of tables: rates or step times of a training job by workers, nodes and batch size.

law    how long a step takes
prior  what jobs are like before they are measured (prior.toml, learnt)
fit    draws from what measurements leave open
model  the model, its parameters, notes and draws
"""

from .fit import ScalingData
from .law import Sizes
from .model import ScalingModel, fit_scaling
from .prior import Prior
from .table import METHOD, NEEDS, of, refuses

__all__ = ["METHOD", "NEEDS", "Prior", "ScalingData", "ScalingModel", "Sizes", "fit_scaling", "of", "refuses"]
