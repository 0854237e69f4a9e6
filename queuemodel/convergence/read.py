"""Measured convergence from a table."""

from __future__ import annotations

import os
from collections import defaultdict

from ..checks import MOST_EXAMPLES
from ..rows import read_rows


def read_convergence(path: str | os.PathLike[str]) -> list[tuple[int, list[float]]]:
    """
    Read how many examples training took to its target, a row for each seed.

    Parameters
    ----------
    path : path
        A CSV with the columns ``batch_size`` (of a whole step, all workers' together) and ``examples``.

    Returns
    -------
    list of (batch size, examples of each seed)
        By batch size; what `fit_convergence` takes.

    Raises
    ------
    DataError
        One line that names the file, the line, the column and the value.
    """
    seeds = defaultdict(list)
    for row in read_rows(path, required=("batch_size", "examples"), what="measurements of convergence"):
        seeds[row.count("batch_size", most=MOST_EXAMPLES)].append(
            row.number("examples", positive=True, largest=MOST_EXAMPLES)
        )
    return sorted(seeds.items())
