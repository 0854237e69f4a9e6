"""A binary heap of times and whose they are."""

from ...compiled import compiled


@compiled()
def push(times, who, size, time, customer):
    """Into a heap of ``size``."""
    i = size
    while i > 0:
        up = (i - 1) // 2
        if times[up] <= time:
            break
        times[i], who[i] = times[up], who[up]
        i = up
    times[i], who[i] = time, customer


@compiled()
def pop(times, who, size):
    """The first leaves a heap of ``size``."""
    time, customer = times[size - 1], who[size - 1]
    last, i = size - 1, 0
    while True:
        child = 2 * i + 1
        if child >= last:
            break
        if child + 1 < last and times[child + 1] < times[child]:
            child += 1
        if times[child] >= time:
            break
        times[i], who[i] = times[child], who[child]
        i = child
    times[i], who[i] = time, customer
