"""Make the pictures of the documentation: ``python docs/scripts/figures.py``."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from closed_fcfs import simulate_fcfs
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator
from PIL import Image

import queuemodel as qm
from queuemodel import curves, example_profile, example_throughputs, queueing
from queuemodel.base import drawing
from queuemodel.base.drawing import COLORS, SMALL, finish_axes
from queuemodel.models import AllReduceModel, predict, simulate, simulate_rounds
from queuemodel.sgd import compare
from queuemodel.sgd.result import STRATEGY_COLORS

IMAGES = Path(__file__).parents[1] / "images"
CONVERGENCE = Path(__file__).parents[2] / "validation" / "data" / "convergence.json"

#: Of one measured throughput, from a minute's run (queuemodel/profile/data/README.md: 2 to 4 %).
NOISE = 0.04


def throughput() -> Axes:
    """The recorded example, predicted from one worker, and what was measured afterwards."""
    curve = qm.fit(example_profile("alexnet-60")).throughput(range(1, 13))
    return curve.plot(measured=[(p.workers, p.steps_per_second) for p in example_throughputs("alexnet-60")])


def step_time() -> Axes:
    """Where a step's time goes."""
    return curves.plot_step_time(qm.fit(example_profile("alexnet-60")).throughput(range(1, 13)))


def efficiency() -> Axes:
    """Efficiency against workers."""
    return curves.plot_efficiency(qm.fit(example_profile("alexnet-60")).throughput(range(1, 13)))


def what_if() -> Axes:
    """The same job with two servers, faster accelerators, or a faster network."""
    model = qm.fit(example_profile("alexnet-60"))
    changes: dict[str, dict[str, float]] = {
        "as profiled": {},
        "2 servers": {"parameter_servers": 2},
        "accelerators twice as fast": {"accelerator_speed": 2.0},
        "100 Mbit/s": {"bandwidth": 12.5e6},
    }
    return curves.plot_comparison(
        {label: model.what_if(**change).throughput(range(1, 17)) for label, change in changes.items()}
    )


def throughputs_only() -> Axes:
    """A fit to throughputs of one to four workers, and what was measured with more."""
    points = example_throughputs("shakesmall-p100")
    curve = qm.fit(points[:4], batch_size=128, parameter_bytes=4 * 2926986).throughput(range(1, 13))
    return curve.plot(measured=[(p.workers, p.steps_per_second) for p in points[4:]])


def network() -> Axes:
    """A network's throughput with its bounds."""
    stations = [queueing.Station("cpu", service_time=0.2), queueing.Station("disk", service_time=0.1)]
    return queueing.plot_network_solution(queueing.solve(queueing.Network(stations, think_time=1.0), population=20))


def first_come() -> Axes:
    """First-come-first-served throughput: formula, simulation and mean-value analysis."""
    D, Z, N = 0.2, 0.8, np.arange(1, 13)
    ax = drawing.new_axes()
    solution = queueing.solve(
        queueing.Network([queueing.Station("server", service_time=D)], think_time=Z), population=12
    )
    ax.plot(N, solution.throughputs, "-", color="0.5", label="predicted, mean-value analysis")
    for cv, color in zip((0.1, 0.3, 0.5), COLORS, strict=False):
        formula = queueing.knee_throughput(N, cycle=D + Z, demand=D, width=queueing.knee_width(cv))
        ax.plot(N, formula, "-", color=color, label=f"predicted, variation {cv}")
        found = [simulate_fcfs(int(n), demands=[D], think_time=Z, cv=cv)[0] for n in N]
        ax.plot(N, found, "x", color=color, label=f"simulated, variation {cv}")
    ax.set_xlim(0, 12.5)
    ax.set_ylim(0, None)
    ax.set_xlabel("population (customers)")
    ax.set_ylabel("throughput (cycles/s)")
    finish_axes(ax)
    return ax


def all_reduce() -> Axes:
    """Where the time of a data-parallel round goes."""
    return curves.plot_step_time(predict(example_profile("ddp-alexnet-40"), workers=range(1, 13)))


def convergence() -> Axes:
    """MLPerf's graph attention network: fitted to two batch sizes, and what the larger ones needed."""
    (points,) = (one["points"] for one in json.loads(CONVERGENCE.read_text()) if one["benchmark"] == "rgat")
    ax = qm.fit_convergence([(point["batch_size"], point["values"]) for point in points[:2]]).plot(
        largest=points[-1]["batch_size"]
    )
    later = [(point["batch_size"], float(np.mean(point["values"]))) for point in points[2:]]
    ax.plot(*zip(*later, strict=True), "o", markerfacecolor="white", color="black", label="measured later", zorder=4)
    ax.set_ylabel("training until the target (epochs)")
    finish_axes(ax, legend="right")
    return ax


def strategies() -> Axes:
    """Loss against time, by strategy."""
    return compare(example_profile("ddp-alexnet-40"), workers=8, problem="logistic").plot()


def strategies_by_network() -> Axes:
    """Each strategy beside synchronous SGD, on the profiled network and on one of 10 Gbit/s."""
    rates = {  # each strategy's best of 0.03, 0.1, 0.3 and 1
        0.1: ["sync", "local-sgd", "adacomm", "top-k", "block-sign", "block-sign-local", "adaquant", "backup-worker",
              "k-sync", "k-batch-sync", "k-async", "k-batch-async"],
        0.3: ["overlap-local-sgd"],
        0.03: ["async-ps", "bounded-staleness"],
        1.0: ["ordered-gradient"],
    }  # fmt: skip
    figure, panels = plt.subplots(4, 4, figsize=(8, 7.2), sharex=True, sharey=True, layout="constrained")
    for changes, line in (({}, "-"), ({"bandwidth": 10e9 / 8}, "--")):
        rows = [
            row
            for rate, names in rates.items()
            for row in compare(
                example_profile("alexnet-60"), workers=8, problem="logistic", strategies=names, seeds=2,
                learning_rates=[rate], **changes,
            ).rows
        ]  # fmt: skip
        for ax, row in zip(panels.flat, rows, strict=True):
            for one in (rows[0], row):
                assert one.descent is not None
                time, loss = one.descent.times.mean(axis=0), one.descent.losses.mean(axis=0)
                ax.plot(time[1:], loss[1:], line, color=STRATEGY_COLORS.get(one.name, "black"))
            ax.set_title(row.name, fontsize="medium")
            ax.set(xscale="log", yscale="log", ylim=(0.23, 0.7))
            ax.yaxis.set(
                major_locator=FixedLocator([0.25, 0.4, 0.6]), major_formatter="{x}", minor_locator=NullLocator()
            )
            finish_axes(ax, legend=None)
    for ax in panels[-1]:
        ax.set_xlabel("time (s)")
    for ax in panels[:, 0]:
        ax.set_ylabel("loss")
    networks = ["60 Mbit/s", "10 Gbit/s"]
    figure.legend(panels[0, 0].lines[::2], networks, loc="outside lower center", ncols=2, fontsize=SMALL, frameon=False)
    return panels[-1, 0]


def all_reduce_curve() -> Axes:
    """Data-parallel training predicted from two ranks, its limits, and what was measured with more."""
    measured = [
        (point.workers, x, (1 - NOISE) * x, (1 + NOISE) * x)
        for point in example_throughputs("ddp-alexnet-40")
        for x in [point.steps_per_second]
    ]
    curve = predict(example_profile("ddp-alexnet-40"), workers=range(1, 13))
    return curve.plot(measured=measured, label="predicted from two ranks")


def gpu_nodes() -> Axes:
    """NCCL on EC2, one V100 or K80 a node: predicted from the phases of one node and of two, and measured on four."""
    sys.path.append(str(IMAGES.parent.parent))
    from validation.nccl import aws_rounds

    ax = drawing.new_axes((7.6, 4.2))
    jobs = [job for job in aws_rounds() if job[0].endswith("None")]  # gradients as they are
    for (name, profile, steps), color in zip(jobs, COLORS, strict=False):
        curve = predict(profile, workers=[1, 2, 3, 4, 6, 8, 12, 16])
        gpu, model = name.removesuffix(", None").replace("P2", "K80").replace("P3", "V100").split(" ")
        batch = curve.batch_size
        ax.plot(curve.workers, curve.examples_per_second, color=color, label=f"{model}, {gpu}")
        drawing.band(ax, curve.workers, batch * curve.lower, batch * curve.upper, color)
        used = {one.ranks: one.ranks * batch / one.round_time for one in profile.rounds}
        ax.plot(used.keys(), used.values(), "o", color=color)
        ax.plot(4, 4 * batch / steps[4], "o", color=color, markerfacecolor="white")
    ax.plot([], [], "o", color="black", label="measured, used")
    ax.plot([], [], "o", color="black", markerfacecolor="white", label="measured, not used")
    ax.set(xscale="log", yscale="log", xlabel="nodes", ylabel="throughput (examples/s)")
    ax.xaxis.set(major_locator=FixedLocator([1, 2, 4, 8, 16]), major_formatter="{x:g}", minor_locator=NullLocator())
    finish_axes(ax, legend="right")
    return ax


def all_reduce_round() -> Axes:
    """A simulated round of eight ranks, as one of them sees it."""
    model = qm.fit(example_profile("ddp-alexnet-40"), strategy="all-reduce")
    assert isinstance(model, AllReduceModel)
    return simulate_rounds(model, ranks=8, rounds=100).plot()


def sharded_round() -> Axes:
    """A simulated round of FSDP on eight ranks, as one of them sees it."""
    return simulate(example_profile("fsdp-gpt8-60"), workers=8, steps=20).plot()


FIGURES = {
    "strategies": strategies,
    "strategies-by-network": strategies_by_network,
    "convergence": convergence,
    "all-reduce": all_reduce,
    "all-reduce-curve": all_reduce_curve,
    "all-reduce-round": all_reduce_round,
    "sharded-round": sharded_round,
    "gpu-nodes": gpu_nodes,
    "throughput": throughput,
    "step-time": step_time,
    "efficiency": efficiency,
    "what-if": what_if,
    "throughputs-only": throughputs_only,
    "network": network,
    "first-come": first_come,
}


def report(path: Path) -> None:
    """The report of the recorded data-parallel example, as Chromium shows it."""
    profile = example_profile("ddp-alexnet-40")
    curve = predict(profile, workers=range(1, 17))
    asked = {"epochs": 10, "deadline": 3600.0, "price_per_node_hour": 2.0}
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--window-size=1180,860",
        "--virtual-time-budget=5000",
    ]
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        curve.report(page, profile=profile, **asked)
        where = [f"--user-data-dir={folder}/chromium", f"--screenshot={path}", f"file://{page}"]
        subprocess.run(["chromium", *flags, *where], check=True, capture_output=True, timeout=60)
    Image.open(path).quantize(160).save(path, optimize=True)


#: Pictures that are not drawn by matplotlib.
PAGES = {"report": report}


def main() -> None:
    """Write them all, or those named."""
    for name in sys.argv[1:] or [*FIGURES, *PAGES]:
        path = IMAGES / f"{name}.png"
        if name in PAGES:
            PAGES[name](path)
        else:
            qm.save_figure(FIGURES[name](), path)
        print(name)


if __name__ == "__main__":
    main()
