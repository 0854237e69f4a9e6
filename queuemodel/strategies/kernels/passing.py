"""Results that come to a server which shares its time equally, one event after the other, for many draws."""

from __future__ import annotations

import numpy as np

from ...compiled import compiled


@compiled()
def kth_through(arrivals, service, K):
    """When the K-th of equal results that arrive at increasing times (B, n) is through, (B,); ``service`` is (B,)."""
    B, n = arrivals.shape
    through = np.empty(B)
    due = np.empty(n)  # service that one who was there all the time has got when each is through
    for b in range(B):
        now, age, came, gone = 0.0, 0.0, 0, 0
        while gone < K:
            there = came - gone
            end = now + max(due[gone] - age, 0.0) * there if there > 0 else np.inf
            if came < n and arrivals[b, came] < end:
                if there > 0:
                    age += (arrivals[b, came] - now) / there
                now = arrivals[b, came]
                due[came] = age + service[b]
                came += 1
            else:
                age, now, gone = due[gone], end, gone + 1
        through[b] = now
    return through
