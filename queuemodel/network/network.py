"""A closed queueing network: stations, think time and their JSON form."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import msgspec
import numpy as np

from ..errors import DataError, ModelError
from ..files import read_bytes, write_atomically
from .station import Station, require_number

FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Network:
    """A closed network of single-class stations.

    Parameters
    ----------
    stations : iterable of Station
        At least one; names are unique.
    think_time : float, default 0
        Seconds per cycle that a customer spends outside all stations.
    name : str, default ""

    Raises
    ------
    ModelError
        When there is no station, two share a name, or a cycle would take no time at all.

    Examples
    --------
    >>> network = Network([Station("cpu", service_time=0.2), Station("disk", service_time=0.1)], think_time=1.0)
    >>> network.service_demand
    array([0.2, 0.1])
    """

    stations: Sequence[Station]
    _: KW_ONLY
    think_time: float = 0.0
    name: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.stations, Station) or not isinstance(self.stations, Iterable):
            raise ModelError(f"network: stations must be a list of Station, got {self.stations!r}")
        object.__setattr__(self, "stations", tuple(self.stations))
        if not self.stations:
            raise ModelError("network: at least one station is needed, got none")
        for station in self.stations:
            if not isinstance(station, Station):
                raise ModelError(f"network: stations must be Station values, got {station!r}")
        names = [station.name for station in self.stations]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ModelError(f"network: station names must be unique, got {twice[0]!r} more than once")
        require_number(self.think_time, "network: think_time", unit="seconds")
        if not self.service_demand.sum() > 0:
            raise ModelError("network: all service demands are zero; give at least one station a service_time > 0")

    @property
    def names(self) -> list[str]:
        """The stations' names, in order."""
        return [station.name for station in self.stations]

    @property
    def service_demand(self) -> np.ndarray:
        """Service demands in seconds per cycle, shape (K,)."""
        return np.array([station.service_demand for station in self.stations])

    @property
    def is_delay(self) -> np.ndarray:
        """Which stations are delays, shape (K,)."""
        return np.array([station.is_delay for station in self.stations])

    def to_dict(self) -> dict[str, Any]:
        """The documented JSON form (docs/reference/network-json)."""
        return {
            "format": "queuemodel-network",
            "version": FORMAT_VERSION,
            "name": self.name,
            "think_time": self.think_time,
            "stations": [
                {
                    "name": s.name,
                    "service_time": s.service_time,
                    "visit_ratio": s.visit_ratio,
                    "servers": "inf" if s.is_delay else int(s.servers),
                }
                for s in self.stations
            ],
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON form to ``path``, all of it or nothing."""
        write_atomically(path, json.dumps(self.to_dict(), indent=1) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Network:
        """Read the JSON form.

        Raises
        ------
        DataError
            When the file cannot be read, or is not such a network; names the file and the field.
        """
        return cls.from_json(read_bytes(path), where=str(path))

    @classmethod
    def from_json(cls, text: str | bytes, *, where: str = "network JSON") -> Network:
        """Parse the JSON form; ``where`` names the source in error messages."""
        try:
            document = msgspec.json.decode(text, type=_NetworkDocument)
            return cls(
                [
                    Station(
                        s.name,
                        service_time=s.service_time,
                        visit_ratio=s.visit_ratio,
                        servers=float("inf") if s.servers == "inf" else s.servers,  # type: ignore[arg-type]
                    )
                    for s in document.stations
                ],
                think_time=document.think_time,
                name=document.name,
            )
        except (msgspec.DecodeError, UnicodeDecodeError, ModelError) as error:
            raise DataError(f"{where}: {error}") from None


class _StationDocument(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    service_time: float
    visit_ratio: float = 1.0
    servers: float | str = 1


class _NetworkDocument(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    version: int
    stations: list[_StationDocument]
    think_time: float = 0.0
    name: str = ""

    def __post_init__(self) -> None:
        require_format(self.format, self.version, "queuemodel-network", FORMAT_VERSION)


def require_format(format: str, version: int, expected: str, known: int) -> None:
    """Refuse another format, and one newer than this package knows (raises DataError, which the decoder places)."""
    if format != expected:
        raise DataError(f"format must be {expected!r}, got {format!r}")
    if not 1 <= version <= known:
        raise DataError(f"version must be 1 to {known}, got {version}; a newer queuemodel may read it")
