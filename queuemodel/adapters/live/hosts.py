"""What this machine says of its network."""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path
from typing import Any

from ...training.job import CONGESTION_CONTROLS, LONGEST_BUFFER

CONGESTION_CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")

#: Queueing disciplines that give each connection a queue of its own.
FAIR = {"fq", "fq_codel", "fq_pie", "sfq"}


def recorded_network(path: Path = CONGESTION_CONTROL) -> dict[str, Any]:
    """Fields of `Cluster`; none that the machine does not say, nor an algorithm that no rule covers."""
    found: dict[str, Any] = {}
    with contextlib.suppress(OSError, UnicodeError):
        found["congestion_control"] = path.read_text().strip()
    if found.get("congestion_control") not in CONGESTION_CONTROLS:
        found.clear()
    if (buffer := shaped_buffer()) is not None:
        found["buffer"] = buffer
    return found | {"origins": dict.fromkeys(found, "recorded")} if found else {}


def shaped_buffer(command: tuple[str, ...] = ("tc", "-j", "qdisc", "show")) -> float | None:
    """Seconds that a packet waits at most in this machine's token bucket (``tc``); None without one, or with several.

    0 where each connection has a queue of its own before the bucket (`FAIR`): none waits behind others' packets.
    What waits in a switch no host can say.
    """
    try:
        done = subprocess.run(command, capture_output=True, timeout=5, check=True)
        found = json.loads(done.stdout)
        buckets = [one for one in found if one["kind"] == "tbf"]
        if len(buckets) == 1 and any(
            one["kind"] in FAIR and one.get("parent", "").startswith(buckets[0]["handle"]) for one in found
        ):
            return 0.0
        limits = [one["options"]["lat"] / 1e6 for one in buckets]
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return limits[0] if len(limits) == 1 and 0 < limits[0] <= LONGEST_BUFFER else None
