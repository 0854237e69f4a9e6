"""What each measured or assumed number of the package changes: halved and doubled, over a fixed set of answers.

python -m validation.constants [PART]

writes validation/constants.csv; of a PART of the names only prints it. Each variation is a process of its own, which
takes the changed number as it imports the package. A share that would pass 1 goes half of the way there. Answers are
throughputs of packaged examples and of recorded series of other kinds, logarithms of their intervals' widths, errors
that solvers expect, what readers make of recordings, and the notes and warnings of all these.
"""

from __future__ import annotations

import contextlib
import csv
import datetime
import itertools
import multiprocessing
import re
import sys
import tempfile
import tomllib
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from tqdm import tqdm

from testbed.recordings import unpacked

ROOT = Path(__file__).parents[1]
TABLE, EXAMPLES = ROOT / "validation" / "constants.csv", ROOT / "queuemodel" / "profile" / "data"
RECORDED = (ROOT / "tests" / "data", ROOT / "validation" / "data" / "testbed")
#: Series of kinds that the examples are not, read once.
SERVERS = ("held_out/alexnet-60-cubic-policed", "held_out/vgg16-90-bbr-5ms", "parameter_servers/vgg16-60-reno-4ms")
RANKS = ("ddp-vgg16-60-bbr", "ddp-alexnet-40-slow-worker", "mirrored-alexnet-60", "mirrored-alexnet-60-bbr")
SHARDED = ("sharded/fsdp-bert6-20-bbr-20ms-half", "sharded/hsdp-gpt8-40-cubic-30ms", "nccl/nccl-fsdp")
SHARES, ROUNDING = ("probability", "correlation", "quantile", "share"), 1e-9
WORDS = "notes of "  # begins the names of answers in words, without their numbers
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
    """Throughputs, and logarithms of their intervals' widths; its caption is a warning, for `answers` to keep."""
    from queuemodel import predict

    curve = predict(data, **({"workers": [1, 2, 4, 16]} | asked))
    warnings.warn(curve.caption(), stacklevel=1)
    return [*curve.steps_per_second, *np.log(curve.upper / curve.lower)]


def rates(compared: Callable[[], Any]) -> list[float]:
    """Steps per second of the compared strategies, by name."""
    rows = sorted(compared().to_rows(), key=lambda row: str(row["strategy"]))
    return [row["steps_per_second"] for row in rows]


def prepare(folder: Path) -> Path:
    """A folder with the recordings, and the profiles of `SERVERS`, `RANKS` and `SHARDED`."""
    import queuemodel as qm
    from queuemodel.adapters import read_mirrored

    from .data_parallel import read_ranks
    from .nccl import aws_rounds
    from .series import read_testbed
    from .sharded import read_shards

    for place in RECORDED:
        (folder / place.name).symlink_to(unpacked(place))
    profiles = {name: read_testbed(folder / "testbed" / name) for name in SERVERS}
    profiles |= {name: read_ranks(folder / "testbed" / "data_parallel" / name) for name in RANKS}
    profiles |= {name: read_shards(folder / "testbed" / name) for name in SHARDED} | {"nccl": next(aws_rounds())[1]}
    steps, rounds = map(qm.example_profile, ("alexnet-60", "ddp-alexnet-40"))
    policed = profiles[SERVERS[0]]
    profiles["few policed steps"] = replace(policed, steps=policed.steps[:4])
    late = sorted((folder / "data" / "mirrored" / "late-input").glob("trace*"))
    profiles["late input"] = read_mirrored(late, batch_size=32, parameter_bytes=3196840)
    unknown = replace(steps.cluster, congestion_control="cubic", buffer=None, origins={})
    profiles["unknown buffer"] = replace(steps, cluster=unknown)
    profiles["one step"] = replace(steps, steps=steps.steps[:1])
    profiles["one round"] = replace(rounds, rounds=[one for one in rounds.rounds if one.number < 1 and one.rank == 0])
    profiles["one rank"] = replace(rounds, rounds=[one for one in rounds.rounds if one.rank == 0])
    for name, profile in profiles.items():
        profile.save(folder / f"{name.replace('/', ' ')}.json")
    return folder


def model_questions(recorded: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """About the packaged examples and `prepare`d profiles, by name."""
    import queuemodel as qm
    from queuemodel import scheduling, sgd

    steps, rounds, sharded = map(qm.example_profile, ("alexnet-60", "ddp-alexnet-40", "fsdp-gpt8-60"))
    for strategy in ("async-ps", "sync-ps"):
        ask = partial(predicted, steps, method="mva", strategy=strategy)
        yield f"closed network, {strategy}, measured", partial(ask, throughputs=qm.example_throughputs()[1:3])
        for control in ("unknown", "bbr", "cubic"):
            yield f"closed network, {strategy}, {control}", partial(ask, congestion_control=control)
        yield f"closed network, {strategy}, 1 Gbit/s", partial(ask, bandwidth="1Gbit/s", other_traffic="20%")
        for control in (None, "bbr", "cubic"):
            simulated = partial(ask, method="trace", workers=[3], congestion_control=control)
            yield f"simulation, {strategy}, {control}", simulated
    for path in sorted(recorded.glob("*.json")):
        profile = qm.Profile.load(path)
        if profile.steps:
            for strategy in ("async-ps", "sync-ps"):
                ask = partial(predicted, profile, strategy=strategy, method="mva")
                yield f"closed network, {strategy}, {path.stem}", ask
            yield f"simulation, {path.stem}", partial(predicted, profile, method="trace", workers=[3])
        else:
            kind = "sharded" if any(one.operations for one in profile.rounds) else "all-reduce"
            yield f"{kind}, {path.stem}", partial(predicted, profile, workers=[4, 16])
    what_ifs: dict[str, dict[str, Any]] = {
        "": {}, ", one message": {"scheme": "tf-ring"}, ", latency": {"latency": "50us"},
        ", longer latency": {"latency": "1ms"},
        ", tree": {"collective": "double-binary-tree"}, ", bandwidth": {"bandwidth": "1Gbit/s"},
        ", measured": {"throughputs": [qm.Measurement(workers=4, steps_per_second=1.0)]},
    }  # fmt: skip
    for name, asked in what_ifs.items():
        yield f"all-reduce{name}", partial(predicted, rounds, **asked)
    yield "all-reduce instead of servers", partial(predicted, steps, strategy="all-reduce")
    traced = replace(steps, cluster=replace(steps.cluster, workers=2), throughputs=[])
    yield "closed network, trace of two workers", partial(predicted, steps, method="mva", throughputs=[traced])
    for name, profile in (("steps", steps), ("rounds", rounds), ("sharded rounds", sharded)):
        for factor in (0.5, 2, 25):
            link = replace(profile.cluster, bandwidth=factor * profile.cluster.bandwidth)
            yield f"{name}, {factor} of the bandwidth", partial(predicted, replace(profile, cluster=link))
    yield "sharded", partial(predicted, sharded)
    yield (
        "sharded, measured",
        partial(predicted, sharded, throughputs=[qm.Measurement(workers=8, steps_per_second=3.0)]),
    )
    for name in ("resnet50-v100-nodes", "shakesmall-p100-throughputs"):
        yield f"table {name}", partial(predicted, qm.read_measurements(EXAMPLES / f"{name}.csv"), workers=[4, 32])
    table = [qm.Measurement(workers=n, steps_per_second=x) for n, x in ((1, 1.0), (2, 1.9), (4, 3.6), (8, 1.5))]
    yield "table with an outlier", partial(predicted, table, workers=[4, 32], strategy="async-ps")
    yield "iterations as steps", partial(predicted, table[:1] * 2 + [replace(table[0], workers=4)], strategy="sync-ps")

    def next_workers(data: Any, most: int) -> list[float]:
        return [qm.next_measurement(qm.predict(data, workers=[most])).workers or 1]

    for name, data, most in (("ranks", rounds, 16), ("few workers", steps, 4), ("many workers", steps, 64)):
        yield f"next measurement, {name}", partial(next_workers, data, most)
    curve = partial(qm.predict, steps, workers=[2, 8], method="mva")
    yield "faster link over slower", lambda: (curve(bandwidth="1Gbit/s") / curve(bandwidth="100Mbit/s")).to_frame()
    for noise in (None, 200.0):
        law = qm.fit_convergence([(32, [2e4, 2.1e4]), (256, [3e4])], noise_scale=noise)
        ends = np.array([0.05, 0.5, 0.95])
        yield f"examples to the target, gradient noise scale {noise}", partial(law.quantiles, 512, ends)
    for profile, names in ((rounds, ("sync", "top-k")), (steps, ("sync", "async-ps"))):
        rows = partial(sgd.compare, profile, workers=2, strategies=names)
        yield f"compare {names}", partial(rates, rows)
    jobs = scheduling.Stream(scheduling.measured_kinds(most=8), jobs=40, nodes=8).workload(seed=1)
    yield "schedule", lambda: [*scheduling.schedule(jobs, scheduling.GreedyGain(), nodes=8).summary().values()]
    yield "errors that solvers expect", expected_errors


def expected_errors() -> list[float]:
    """Of approximate solvers on networks of each kind."""
    from queuemodel import queueing as qn

    kinds = ({}, {"servers": 2}, {"discipline": "fcfs", "scv": 4.0})
    solvers = [qn.ApproximateMVA(method) for method in ("bard-schweitzer", "linearizer", "recursion")]
    found = []
    for kind, solver in itertools.product(kinds, solvers):
        network = qn.Network([qn.Station("q", service_time=0.2, **kind)], think_time=1.0)
        with contextlib.suppress(ValueError):
            found.append(qn.solve(network, population=8, solver=solver).expected_error)
    return np.nan_to_num(found).tolist()


def reader_questions(recorded: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """About recordings, by name."""
    from queuemodel import adapters

    def read(reader: Callable[..., Any], name: str, **asked: Any) -> list[float]:
        folder: Any = recorded / name
        single = reader is adapters.read_tensorflow
        profile = reader(folder if single else sorted(folder.glob("trace*")), batch_size=32, **asked)
        return [len(one.operations) for one in profile.steps] + [row["mean"] for row in profile.summary()]

    for name in ("alexnet-60/trace", "layer-order", "xplane-1ps", "xplane-2ps", "xplane-slow-input"):
        yield f"read {name}", partial(read, adapters.read_tensorflow, f"data/{name}", parameter_bytes=788992)
    for name in ("tiny", "slow-input", "late-input", "mlp"):
        yield f"read {name}", partial(read, adapters.read_mirrored, f"data/mirrored/{name}", parameter_bytes=3196840)
    for name in (
        "data/ddp/ddp-alexnet-40", "data/ddp/ddp-resnet50-60", "data/sharded/fsdp-gpt8-60", "data/sharded/hsdp-gpt8-60",
        "testbed/nccl/nccl-ddp", "testbed/nccl/nccl-fsdp1", "testbed/nccl/nccl-fsdp-clipped", "testbed/nccl/nccl-hsdp",
    ):  # fmt: skip
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
    warnings.simplefilter("always")
    found = {}
    for name, question in reader_questions(recorded) if package.endswith("adapters") else model_questions(recorded):
        if USERS.get(package, "") in name:
            with warnings.catch_warnings(record=True) as said:
                try:
                    found[name] = np.ravel(np.array(question(), dtype=float))
                except (ValueError, ArithmeticError, RuntimeError):
                    found[name] = np.empty(0)
            words = re.sub(r"[\d.]+", "", " ".join(sorted(str(one.message) for one in said)))
            found[f"{WORDS}{name}"] = np.array(bytearray(words.encode()))
    return found


def change(before: Answers, after: Answers) -> tuple[float, str]:
    """The largest relative change, and of which answer; infinite where only one is refused."""
    found = [(0.0, "not reached")]
    for name, new in after.items():
        same, old = new.shape == before[name].shape, before[name]
        away = np.abs(new - old) / np.maximum(np.abs(old), 1e-12) if same else np.array([np.inf])
        if name.startswith(WORDS):
            found += [(0.0, name)] if away.any() else []
        else:
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
    with file, tempfile.TemporaryDirectory() as folder, context.Pool(2, maxtasksperchild=1) as pool:
        found = iter(tqdm(pool.imap(partial(answers, prepare(Path(folder))), tasks), total=len(tasks)))
        before = next(found) | next(found)
        for (name, row), half, double in zip(rows.items(), found, found, strict=False):
            changes = [change(before, one) for one in (half, double)]
            shown = [f"{by:.2g}" for by, _ in changes]
            table.writerow([".".join(name), row["value"], row["unit"], *shown, max(changes)[1], row["command"]])
            file.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
