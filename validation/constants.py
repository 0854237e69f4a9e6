"""What each measured or assumed number of the package changes: halved and doubled, over a fixed set of answers.

python -m validation.constants [PART]

writes validation/constants.csv; of a PART of the names only prints it. Each variation is a process of its own, which
takes the changed number as it imports the package. A share that would pass 1 goes half of the way there. Answers are
throughputs of packaged examples, logarithms of their intervals' widths, and what readers make of recorded tests.
"""

from __future__ import annotations

import csv
import datetime
import multiprocessing
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from testbed.recordings import unpacked

ROOT = Path(__file__).parents[1]
TABLE, EXAMPLES = ROOT / "validation" / "constants.csv", ROOT / "queuemodel" / "profile" / "data"
RECORDED = ROOT / "tests" / "data"
SHARES, ROUNDING = ("probability", "correlation", "quantile", "share"), 1e-9
#: Names of the questions that can depend on a folder, where these are few.
USERS = {"queuemodel.simulator.kernel": "simulation", "queuemodel.models.simulation": "simulation",
         "queuemodel.models.sharded": "sharded"}  # fmt: skip
Name = tuple[str, ...]  # the package, and the keys in its table
Answers = dict[str, np.ndarray]


def numbers(table: dict[str, Any], name: Name) -> Iterator[tuple[Name, dict[str, Any]]]:
    """The rows of a table of numbers, with their names."""
    for key, row in table.items():
        yield from [((*name, key), row)] if "value" in row else numbers(row, (*name, key))


def varied(row: dict[str, Any], factor: float) -> float:
    """A number times a factor: a count stays whole, a share below 1."""
    value, changed = row["value"], factor * row["value"]
    if row["unit"].startswith(SHARES) and value < 1 <= changed:
        changed = (1 + value) / 2
    return max(1, round(changed)) if isinstance(value, int) else float(changed)


def predicted(data: Any, **asked: Any) -> list[float]:
    """Throughputs, and logarithms of their intervals' widths."""
    from queuemodel import predict

    curve = predict(data, **({"workers": [1, 2, 4, 16]} | asked))
    return [*curve.steps_per_second, *np.log(curve.upper / curve.lower)]


def rates(compared: Callable[[], Any]) -> list[float]:
    """Steps per second of the compared strategies, by name."""
    rows = sorted(compared().to_rows(), key=lambda row: str(row["strategy"]))
    return [row["steps_per_second"] for row in rows]


def model_questions() -> Iterator[tuple[str, Callable[[], Any]]]:
    """About the packaged examples, by name."""
    import queuemodel as qm
    from queuemodel import scheduling, sgd

    steps, rounds, sharded = map(qm.example_profile, ("alexnet-60", "ddp-alexnet-40", "fsdp-gpt8-60"))
    for strategy in ("async-ps", "sync-ps"):
        ask = partial(predicted, steps, method="mva", strategy=strategy)
        yield f"closed network, {strategy}, measured", partial(ask, throughputs=qm.example_throughputs()[1:3])
        for control in ("unknown", "bbr", "cubic"):
            yield f"closed network, {strategy}, {control}", partial(ask, congestion_control=control)
        yield f"simulation, {strategy}", partial(ask, method="trace", workers=[3])
    for name, asked in (("", {}), (", one message", {"scheme": "tf-ring"}), (", latency", {"latency": "50us"})):
        yield f"all-reduce{name}", partial(predicted, rounds, **asked)
    yield "sharded", partial(predicted, sharded)
    for name in ("resnet50-v100-nodes", "shakesmall-p100-throughputs"):
        yield f"table {name}", partial(predicted, qm.read_measurements(EXAMPLES / f"{name}.csv"), workers=[4, 32])
    yield "next measurement", lambda: [qm.next_measurement(qm.predict(rounds, workers=[16])).workers or 0]
    law = qm.fit_convergence([(32, [2e4, 2.1e4]), (256, [3e4])])
    yield "examples to the target", lambda: law.quantiles(512, np.array([0.05, 0.5, 0.95]))
    for profile, names in ((rounds, ("sync", "top-k")), (steps, ("sync", "async-ps"))):
        rows = partial(sgd.compare, profile, workers=2, strategies=names)
        yield f"compare {names}", partial(rates, rows)
    jobs = scheduling.Stream(scheduling.measured_kinds(most=8), jobs=40, nodes=8).workload(seed=1)
    yield "schedule", lambda: [*scheduling.schedule(jobs, scheduling.GreedyGain(), nodes=8).summary().values()]


def reader_questions(recorded: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """About recordings, by name."""
    from queuemodel import adapters

    def read(reader: Callable[..., Any], name: str, **asked: Any) -> list[float]:
        folder: Any = recorded / name
        single = reader is adapters.read_tensorflow
        profile = reader(folder if single else sorted(folder.glob("trace*")), batch_size=32, **asked)
        return [len(one.operations) for one in profile.steps] + [row["mean"] for row in profile.summary()]

    for name in ("alexnet-60/trace", "xplane-1ps", "xplane-slow-input"):
        yield f"read {name}", partial(read, adapters.read_tensorflow, name, parameter_bytes=788992)
    for name in ("tiny", "slow-input", "late-input"):
        yield f"read {name}", partial(read, adapters.read_mirrored, f"mirrored/{name}", parameter_bytes=3196840)
    for name in ("ddp/ddp-alexnet-40", "sharded/fsdp-gpt8-60"):
        yield f"read {name}", partial(read, adapters.read_pytorch, name)


def answers(recorded: Path, variation: tuple[Name, float | None]) -> Answers:
    """What the package answers with another value of a number, where it is not imported yet; nothing for a refusal."""
    from queuemodel.base import files

    (package, *keys), value = variation
    read = files.constants

    def constants(of: str, file: str = "constants.toml") -> dict[str, Any]:
        table = row = read(of, file)
        if value is not None and (of, file) == (package, "constants.toml"):
            for key in keys[:-1]:
                row = row[key]
            row[keys[-1]] = value
        return table

    setattr(files, "constants", constants)  # noqa: B010 (a cache in its place, for mypy)
    warnings.simplefilter("ignore")
    found = {}
    for name, question in reader_questions(recorded) if package.endswith("adapters") else model_questions():
        if USERS.get(package, "") in name:
            try:
                found[name] = np.array(question(), dtype=float)
            except (ValueError, ArithmeticError, RuntimeError):
                found[name] = np.empty(0)
    return found


def change(before: Answers, after: Answers) -> tuple[float, str]:
    """The largest relative change, and of which answer; infinite where only one is refused."""
    found = [(0.0, "not reached")]
    for name, new in after.items():
        same, old = new.shape == before[name].shape, before[name]
        away = np.abs(new - old) / np.maximum(np.abs(old), 1e-12) if same else np.array([np.inf])
        found += [(by, name) for by in away.tolist() if by > ROUNDING]
    return max(found)


def main(part: str = "") -> None:
    """Vary the numbers in whose names the part is."""
    rows: dict[Name, dict[str, Any]] = {}
    for path in sorted((ROOT / "queuemodel").rglob("constants.toml")):
        package = ".".join(path.parent.relative_to(ROOT).parts)
        rows |= {n: row for n, row in numbers(tomllib.loads(path.read_text()), (package,)) if part in ".".join(n)}
    tasks: list[tuple[Name, float | None]] = [(("models",), None), (("adapters",), None)]
    tasks += [(name, varied(row, factor)) for name, row in rows.items() for factor in (0.5, 2.0)]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["numpy", "scipy.optimize", "scipy.special", "scipy.stats", "msgspec", "tabulate"])
    file = sys.stdout if part else TABLE.open("w", newline="")
    table = csv.writer(file, lineterminator="\n")
    table.writerow(["number", "value", "unit", "halved", "doubled", f"most of ({datetime.date.today()})", "command"])
    with file, context.Pool(2, maxtasksperchild=1) as pool:
        found = iter(tqdm(pool.imap(partial(answers, unpacked(RECORDED)), tasks), total=len(tasks)))
        before = next(found) | next(found)
        for (name, row), half, double in zip(rows.items(), found, found, strict=False):
            changes = [change(before, one) for one in (half, double)]
            shown = [f"{by:.2g}" for by, _ in changes]
            table.writerow([".".join(name), row["value"], row["unit"], *shown, max(changes)[1], row["command"]])
            file.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
