"""A binary heap in three arrays, ordered by (key, sequence): ties go first come, first served."""

from __future__ import annotations

from .compiler import fast


@fast
def _precedes(key, sequence, i, j):
    return key[i] < key[j] or (key[i] == key[j] and sequence[i] < sequence[j])


@fast
def _swap(key, sequence, value, i, j):
    key[i], key[j] = key[j], key[i]
    sequence[i], sequence[j] = sequence[j], sequence[i]
    value[i], value[j] = value[j], value[i]


@fast
def heap_push(key, sequence, value, base, n, new_key, new_sequence, new_value):
    """Put an entry on the heap of ``n`` entries from index ``base`` on."""
    i = n
    key[base + i], sequence[base + i], value[base + i] = new_key, new_sequence, new_value
    while i and _precedes(key, sequence, base + i, base + (i - 1) // 2):
        _swap(key, sequence, value, base + i, base + (i - 1) // 2)
        i = (i - 1) // 2


@fast
def heap_pop(key, sequence, value, base, n):
    """Take the first of the heap's ``n`` entries away and return its value."""
    n -= 1
    _swap(key, sequence, value, base, base + n)
    i = 0
    while True:
        child = 2 * i + 1
        if child >= n:
            return value[base + n]
        if child + 1 < n and _precedes(key, sequence, base + child + 1, base + child):
            child += 1
        if not _precedes(key, sequence, base + child, base + i):
            return value[base + n]
        _swap(key, sequence, value, base + i, base + child)
        i = child
