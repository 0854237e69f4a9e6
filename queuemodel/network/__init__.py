"""The language of closed queueing networks; no numerics."""

from .network import Network
from .solution import Solution
from .station import Station

__all__ = ["Network", "Solution", "Station"]
