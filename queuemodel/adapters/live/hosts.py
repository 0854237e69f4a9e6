"""What this machine says of its network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...training.job import CONGESTION_CONTROLS

CONGESTION_CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")


def recorded_network(path: Path = CONGESTION_CONTROL) -> dict[str, Any]:
    """Fields of `Cluster`; none where the machine does not say, or names an algorithm that no rule covers."""
    try:
        found = path.read_text().strip()
    except (OSError, UnicodeError):
        return {}
    known = found in CONGESTION_CONTROLS
    return {"congestion_control": found, "origins": {"congestion_control": "recorded"}} if known else {}
