"""Gradients in slices on one network, by priority, event by event."""

import heapq
import math

import numpy as np


def by_priority(ready, sizes, cap, credit, cost):
    """Ends of gradients whose slices wait on a heap; the network has the most urgent one whenever credit is left.

    ``cost`` gives a slice's seconds of the network and those before it, which pass beside the work on others.
    """
    counts = [max(1, math.ceil(size / cap)) for size in sizes]
    heap, coming, under_way = [], list(range(len(sizes))), []
    now, free, ends = 0.0, 0.0, np.zeros(len(sizes))
    while heap or coming:
        while coming and ready[coming[0]] <= now:
            i = coming.pop(0)
            for part in range(counts[i]):
                heapq.heappush(heap, (-i, part, sizes[i] / counts[i]))
        under_way = [one for one in under_way if one[0] > now]
        if heap and (not under_way or sum(size for _, size in under_way) + heap[0][2] <= credit * (1 + 1e-12)):
            i, _, size = heapq.heappop(heap)
            work, wait = cost(size)
            free = max(free, now + wait) + work
            under_way.append((free, size))
            ends[-i] = max(ends[-i], free)
            continue
        now = min([*(end for end, _ in under_way), *(ready[i] for i in coming[:1])])
    return ends
