"""Steps on parameter servers as a closed network: `demands` of a `fit`, how steps wait (`rules`), `calibration`."""

from .calibration import fit_network
from .model import TrainingModel, staleness
from .rules import order_statistic

__all__ = ["TrainingModel", "fit_network", "order_statistic", "staleness"]
