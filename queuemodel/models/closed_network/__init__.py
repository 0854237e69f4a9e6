"""Steps on parameter servers as a closed network: `demands` of a `fit`, how steps wait (`rules`), `calibration`."""

from .calibration import METHOD, NEEDS, fit_network, of, refuses
from .model import ClosedNetworkModel, staleness
from .rules import order_statistic

__all__ = ["METHOD", "NEEDS", "ClosedNetworkModel", "fit_network", "of", "order_statistic", "refuses", "staleness"]
