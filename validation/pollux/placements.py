"""All placements of the Pollux artifact's traces on 6 to 16 nodes, from few placements on at most two.

python -m validation.pollux.placements

Prints a section of docs/validation.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from queuemodel import PlacedStep, PlacementModel, fit_placements, read_placements
from queuemodel.models.placements import ACROSS

#: Where validation/data/README.md says from.
DATA = Path(__file__).parent.parent / "data" / "pollux"

#: Growths of short all-reduces, and seconds of long ones, to choose from for an application that is left out.
GROWTHS = list(itertools.product(np.arange(0.2, 0.61, 0.02), (0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5, math.inf)))

SECTION = """## Several GPUs per node: from one and two nodes to 6 to 16

Data-parallel jobs of the Pollux artifact on T4 GPUs (`validation/data/pollux`), from nodes of one GPU each to such
nodes, and from all placements on one and two nodes to all on 6 to 16 (`queuemodel.fit_placements`). Errors are of
throughput, over measurements; *bias* is their mean, *covered* the share inside 90 % intervals, of those on full
nodes. How an all-reduce grows beyond two nodes was assumed after seeing these; *left out* is the error with that
growth which serves the measurements of the other applications best.
"""

Key = tuple[str, int]


def applications() -> dict[str, list[PlacedStep]]:
    """What was measured, by application."""
    return {path.stem: read_placements(path) for path in sorted(DATA.glob("*.csv"))}


def single(points: Sequence[PlacedStep]) -> list[PlacedStep]:
    """Nodes of one GPU each, at batch sizes that one and two of them have."""
    own = [point for point in points if point.gpus_per_node == 1]
    sizes = [{point.batch_size for point in own if point.nodes == nodes} for nodes in (1, 2)]
    return [point for point in own if point.batch_size in sizes[0] & sizes[1]]


def batch_by_batch(points: Sequence[PlacedStep]) -> list[list[PlacedStep]]:
    """The same, each batch size apart."""
    own = single(points)
    return [[p for p in own if p.batch_size == size] for size in sorted({p.batch_size for p in own})]


#: What is fitted together.
QUESTIONS: dict[str, Callable[[Sequence[PlacedStep]], Sequence[Sequence[PlacedStep]]]] = {
    "one GPU per node, one batch size at a time": batch_by_batch,
    "one GPU per node": lambda points: [single(points)],
    "all placements": lambda points: [points],
}


def fit_near(points: Sequence[PlacedStep]) -> PlacementModel:
    """The model from what stands on one and two nodes."""
    return fit_placements([point for point in points if point.nodes <= 2])


def far_of(points: Sequence[PlacedStep]) -> list[PlacedStep]:
    """What is to be predicted."""
    return [point for point in points if point.nodes >= 6]


def predicted(model: PlacementModel, points: Sequence[PlacedStep]) -> np.ndarray:
    """Relative errors of throughput."""
    return np.array([point.step_time for point in points]) / model.seconds(points) - 1


def covered(model: PlacementModel, points: Sequence[PlacedStep]) -> np.ndarray:
    """Whether measurements are inside the 90 % intervals; those on full nodes, as the model's curves have them."""
    inside = []
    full = [point for point in points if point.gpus == point.nodes * point.gpus_per_node]
    for share, batch in sorted({(point.gpus_per_node, point.batch_size) for point in full}):
        measured = {p.gpus: p.gpus / p.step_time for p in full if (p.gpus_per_node, p.batch_size) == (share, batch)}
        curve = model.throughput(sorted(measured), gpus_per_node=share, batch_size=batch)
        x = np.array([measured[gpus] for gpus in curve.workers.tolist()])
        inside.append((curve.lower <= x) & (x <= curve.upper))
    return np.concatenate(inside)


def asked(question: str) -> tuple[dict[Key, PlacementModel], dict[Key, list[PlacedStep]]]:
    """Models of what stands near, and what is far, by application and number of the fit."""
    groups = {
        (name, number): group
        for name, own in applications().items()
        for number, group in enumerate(QUESTIONS[question](own))
        if far_of(group)
    }
    return {key: fit_near(group) for key, group in groups.items()}, {key: far_of(g) for key, g in groups.items()}


def left_out(models: dict[Key, PlacementModel], far: dict[Key, list[PlacedStep]]) -> dict[Key, np.ndarray]:
    """Errors of each application with the growth that serves the measurements of the others best."""
    tried = {
        key: [np.abs(predicted(_growing(model, *growth), far[key])) for growth in GROWTHS]
        for key, model in models.items()
    }
    found = {}
    for key, model in models.items():
        others = [errors for other, errors in tried.items() if other[0] != key[0]]
        means = [np.concatenate([errors[i] for errors in others]).mean() for i in range(len(GROWTHS))]
        found[key] = predicted(_growing(model, *GROWTHS[int(np.argmin(means))]), far[key])
    return found


def _growing(model: PlacementModel, growth: float, long: float) -> PlacementModel:
    """The model with another growth, which measurements on at most two nodes do not touch."""
    return replace(model, mode=np.append(model.mode[:-1], growth / (1 + np.exp(model.mode[ACROSS]) / long)))


def placements_section() -> str:
    """Markdown: how far off, by application and together."""
    lines = [
        "| from | application | measurements | mean error | bias | covered | left out |",
        "|---" * 7 + "|",
    ]

    def row(title: str, name: str, errors: np.ndarray, inside: np.ndarray, others: np.ndarray) -> None:
        told = f"{abs(errors).mean():.1%} | {errors.mean():+.1%} | {inside.mean():.0%} | {abs(others).mean():.1%}"
        lines.append(f"| {title} | {name} | {len(errors)} | {told} |")

    for title in QUESTIONS:
        models, far = asked(title)
        parts = (
            {key: predicted(model, far[key]) for key, model in models.items()},
            {key: covered(model, far[key]) for key, model in models.items()},
            left_out(models, far),
        )
        for name in dict.fromkeys(name for name, _ in models):
            row(title, name, *(np.concatenate([own for key, own in part.items() if key[0] == name]) for part in parts))
        row(title, "**all**", *(np.concatenate(list(part.values())) for part in parts))
    return "\n".join([SECTION, *lines]) + "\n"


def main() -> None:
    """Print the section."""
    print(placements_section())


if __name__ == "__main__":
    main()
