"""All placements of the Pollux artifact's traces on 6 to 16 nodes, from few placements on at most two.

python -m validation.pollux.placements

Prints, for each application and all, the mean error of throughput and the share inside 90 % intervals: from nodes of
one GPU each to such nodes, and from every placement on one and two nodes to every one on 6 to 16. Each with the growth
of the all-reduce as the package assumes it, and as the other applications have it (left out: the median error decides).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from queuemodel import PlacedStep, PlacementModel, fit_placements, read_placements

#: Where validation/data/README.md says from.
DATA = Path(__file__).parent.parent / "data" / "pollux"

#: Growths to choose from for an application that is left out.
GROWTHS = np.arange(0.0, 0.61, 0.02)


def applications() -> dict[str, list[PlacedStep]]:
    """What was measured, by application."""
    return {path.stem: read_placements(path) for path in sorted(DATA.glob("*.csv"))}


def single(points: Sequence[PlacedStep]) -> list[PlacedStep]:
    """Nodes of one GPU each, at batch sizes that one and two of them have."""
    own = [point for point in points if point.gpus_per_node == 1]
    sizes = [{point.batch_size for point in own if point.nodes == nodes} for nodes in (1, 2)]
    return [point for point in own if point.batch_size in sizes[0] & sizes[1]]


def fit_near(points: Sequence[PlacedStep]) -> PlacementModel:
    """The model from what stands on one and two nodes."""
    return fit_placements([point for point in points if point.nodes <= 2])


def far_of(points: Sequence[PlacedStep]) -> list[PlacedStep]:
    """What is to be predicted."""
    return [point for point in points if point.nodes >= 6]


def predicted(model: PlacementModel, points: Sequence[PlacedStep]) -> np.ndarray:
    """Relative errors of throughput."""
    step_times = [
        model.step_time(nodes=p.nodes, gpus=p.gpus, batch_size=p.batch_size, gpus_per_node=p.gpus_per_node)
        for p in points
    ]
    return np.array([point.step_time for point in points]) / np.array(step_times) - 1


def covered(model: PlacementModel, points: Sequence[PlacedStep]) -> float:
    """Share of measurements inside the 90 % intervals; those that stand as the model packs them, on full nodes."""
    inside = []
    for p in points:
        if p.gpus == p.nodes * p.gpus_per_node:
            curve = model.throughput([p.gpus], gpus_per_node=p.gpus_per_node, batch_size=p.batch_size)
            inside.append(bool(curve.lower[0] <= p.gpus / p.step_time <= curve.upper[0]))
    return float(np.mean(inside))


def left_out(models: dict[str, PlacementModel], far: dict[str, list[PlacedStep]]) -> dict[str, np.ndarray]:
    """Errors of each application with the growth that serves the measurements of the others best."""
    tried = {
        name: [np.abs(predicted(_growing(model, growth), far[name])) for growth in GROWTHS]
        for name, model in models.items()
    }
    found = {}
    for name, model in models.items():
        others = [np.concatenate([errors[i] for o, errors in tried.items() if o != name]) for i in range(len(GROWTHS))]
        best = int(np.argmin([errors.mean() for errors in others]))
        found[name] = predicted(_growing(model, GROWTHS[best]), far[name])
    return found


def _growing(model: PlacementModel, growth: float) -> PlacementModel:
    """The model with another growth, which measurements on at most two nodes do not touch."""
    return replace(model, mode=np.append(model.mode[:-1], growth))


def main() -> None:
    """Print a table for each of the two questions."""
    measured = applications()
    for title, chosen in {"nodes of one GPU": single, "all placements": list}.items():
        points = {name: chosen(own) for name, own in measured.items()}
        far = {name: far_of(own) for name, own in points.items()}
        models = {name: fit_near(own) for name, own in points.items()}
        errors = {name: predicted(model, far[name]) for name, model in models.items()}
        others = left_out(models, far)
        print(f"{title}, from at most two nodes to 6 to 16: mean error (its mean), inside 90 % intervals; left out")
        for name, e in errors.items():
            inside = covered(models[name], far[name])
            print(f"  {name}: {abs(e).mean():.1%} ({e.mean():+.1%}), {inside:.0%}; {abs(others[name]).mean():.1%}")
        every, without = (np.abs(np.concatenate(list(one.values()))) for one in (errors, others))
        print(f"  all {len(every)}: {every.mean():.1%}, 95th percentile {np.quantile(every, 0.95):.1%}; left out "
              f"{without.mean():.1%}, {np.quantile(without, 0.95):.1%}")  # fmt: skip


if __name__ == "__main__":
    main()
