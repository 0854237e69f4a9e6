"""Combinations of options in which each two values meet."""

import itertools
import random
from collections.abc import Iterator
from typing import Any


def pairwise(number: int, /, **options: list[Any]) -> Iterator[dict[str, Any]]:
    """Rows that have each pair of two options' values; None is not asked, and of a dictionary the items are."""
    rng = random.Random(number)

    def pairs(row: dict[str, int]) -> set[Any]:
        return set(itertools.combinations(row.items(), 2))

    ranges = [[(name, i) for i in range(len(values))] for name, values in options.items()]
    missing = {pair for a, b in itertools.combinations(ranges, 2) for pair in itertools.product(a, b)}
    while missing:
        rows = [{name: rng.randrange(len(options[name])) for name in options} | dict(min(missing)) for _ in range(60)]
        best = max(rows, key=lambda row: len(missing & pairs(row)))
        missing -= pairs(best)
        asked = {name: options[name][i] for name, i in best.items() if options[name][i] is not None}
        yield {k: v for name, one in asked.items() for k, v in (one if isinstance(one, dict) else {name: one}).items()}
