"""A workload: which model trains on which cluster, read from a small JSON file."""

from __future__ import annotations

import json
import math
import tarfile
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from .recordings import PACKED

#: Modes without servers, and the framework of each.
RANKS = {
    "ddp": "torch DistributedDataParallel",
    "fsdp": "torch fully_shard (FSDP2)",
    "mirrored": "tensorflow MultiWorkerMirroredStrategy",
}

#: Modes in which an update takes so many results, and that in which workers keep together.
OF_RESULTS = ("k-async", "k-batch-async", "k-sync", "k-batch-sync", "backup-workers")
BOUNDED = "bounded-staleness"

#: Disciplines of queues that links of our own have (see `links`).
FQ_CODEL, POLICER, FIFO = QUEUES = ("fq_codel", "policer", "bfifo")

DROPPING = ("k-sync", "k-batch-sync", "backup-workers")  # whose rounds drop what comes late
MODES = ("async", "sync", *OF_RESULTS, BOUNDED, *RANKS)

#: Fields of ranks of PyTorch, and of those that share parameters.
OF_TORCH = ("accumulation", "precision", "ranks_per_node")
OF_FSDP = ("shards", "reshard", "separate_group", "input_buffers", "optimizer_s")

#: What a workload whose ranks learn says of it.
LEARNT = {"examples", "batch_size", "learning_rate", "steps"}


class TestbedError(Exception):
    """What stops a measurement, in one line for the person who started it."""

    __test__ = False  # pytest: not a class of tests


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer: the tensors it needs (bytes) and its computation (mean seconds)."""

    name: str
    tensor_bytes: tuple[int, ...]
    forward_s: float
    backward_s: float
    servers: tuple[int, ...] = ()  # which parameter server holds each tensor; empty: round robin


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """
    A training job and the cluster under it.

    Parameters
    ----------
    name : str
        Of the series.
    layers : tuple of Layer
        In forward order.
    bandwidth_mbit : float
        Of every host's link, in each direction.
    cv : float
        Coefficient of variation of every emulated computation (gamma distributed).
    parameter_servers : int
        How many; tensors are spread round robin unless a layer names its `servers`.
    mode : str
        One of `MODES`. In "sync" a step ends when the averaged gradients of all workers are applied. An update of
        `OF_RESULTS` takes the gradients of the first `awaited` workers: who gave one waits for it ("k-async") or goes
        on ("k-batch-async"), and in rounds who is late is cut short ("k-sync") or ends its step ("backup-workers");
        in "k-batch-sync", who gave one uses its parameters again, and all are cut short.
        With "bounded-staleness" nobody begins a step more than `staleness_bound` ahead of the slowest. "ddp" and
        "mirrored" have no servers: every step ends in an all-reduce among the workers, by PyTorch's
        `DistributedDataParallel` over gloo, or by TensorFlow's `MultiWorkerMirroredStrategy` with the ring over gRPC;
        with "fsdp" they share parameters, by PyTorch's `fully_shard` over gloo on emulated accelerators.
    awaited : float
        Share of the workers whose gradients an update takes.
    staleness_bound : int
    order : {"", "layer"}
        "layer": a layer's tensors are read only after those of the layer before have arrived.
    slow_worker : float
        Factor on every computation of worker 1.
    accelerator : float
        How much faster every worker computes than the layers say.
    other_traffic : float
        Share of every link, in each direction, that datagrams take.
    other_traffic_hosts : tuple of str
        Hosts such as "ps0" whose links alone carry it; empty: all.
    slow_link_mbit : float or None
        Rate of the link of worker 1.
    host_bandwidth_mbit : dict
        Rate of single hosts, such as ``{"ps0": 100}``.
    congestion_control : str or None
        TCP's algorithm in all hosts; None keeps the machine's own.
    bucket_mb : float
        What is reduced together: DDP's ``bucket_cap_mb`` (MiB), the mirrored strategy's ``bytes_per_pack`` (0: all).
    buffer_ms : float
        How long a packet waits at most before a link (milliseconds); of a "policer": how long its bucket lasts.
    queue : {"", "fq_codel", "policer", "bfifo"}
        Discipline at both ends of every link; "": a token bucket with a queue that drops what comes last; "bfifo": the
        same of our own.
    accumulation : int
        Batches whose gradients a rank of "ddp" or "fsdp" adds up before they are reduced.
    precision : {"single", "half"}
        Of what ranks of "ddp" (gradients, float16) and "fsdp" (parameters and gradients, bfloat16) send.
    ranks_per_node : int
        Ranks of "ddp" or "fsdp" on each host, which share its link.
    shards : int
        Of "fsdp": ranks that share a copy of the model; 0: all.
    reshard : bool
        Of "fsdp": parameters are given up after the forward pass, and gathered again.
    separate_group : bool
        Of "fsdp": reduce-scatters have a communicator of their own.
    input_buffers : int
        Of "fsdp": gradients of so many layers may wait to be reduced.
    optimizer_s : float
        Of "fsdp": what updating all parameters takes; ranks that share a copy share it.
    changes : tuple of dict
        Fields with other values, with which 2 and 4 ranks are measured besides.
    learn : dict
        What the ranks of a "ddp" job of two layers learn for real besides, by every strategy: ``examples``,
        ``batch_size``, ``learning_rate``, ``steps`` (see `rounds.training_task`); empty: nothing.
    note : str
        Where the sizes and times come from.
    """

    name: str
    layers: tuple[Layer, ...]
    bandwidth_mbit: float
    cv: float = 0.1
    parameter_servers: int = 1
    mode: str = "async"
    awaited: float = 1.0
    staleness_bound: int = 0
    order: str = ""
    slow_worker: float = 1.0
    accelerator: float = 1.0
    other_traffic: float = 0.0
    other_traffic_hosts: tuple[str, ...] = ()
    slow_link_mbit: float | None = None
    host_bandwidth_mbit: dict[str, float] = field(default_factory=dict)
    congestion_control: str | None = None
    bucket_mb: float = 0.0
    buffer_ms: float = 12.0
    queue: str = ""
    accumulation: int = 1
    precision: str = "single"
    ranks_per_node: int = 1
    shards: int = 0
    reshard: bool = True
    separate_group: bool = False
    input_buffers: int = 1
    optimizer_s: float = 0.0
    changes: tuple[dict[str, Any], ...] = ()
    learn: dict[str, float] = field(default_factory=dict)
    note: str = ""

    @property
    def model_bytes(self) -> int:
        return sum(sum(layer.tensor_bytes) for layer in self.layers)

    @property
    def compute_s(self) -> float:
        return sum(layer.forward_s + layer.backward_s for layer in self.layers)

    def results(self, workers: int) -> int:
        """How many gradients an update takes, among so many workers."""
        return max(1, round(self.awaited * workers))

    def servers(self) -> list[list[int]]:
        """Which server holds each tensor, layer by layer."""
        placement, tensor = [], 0
        for layer in self.layers:
            turn = [(tensor + i) % self.parameter_servers for i in range(len(layer.tensor_bytes))]
            placement.append(list(layer.servers) or turn)
            tensor += len(turn)
        return placement

    def link_mbit(self, host: str) -> float:
        """Rate of a host's link (Mbit/s, the same in both directions)."""
        if host == "worker1" and self.slow_link_mbit:
            return self.slow_link_mbit
        return self.host_bandwidth_mbit.get(host, self.bandwidth_mbit)

    def job(self) -> dict[str, Any]:
        """What `job.json` of a recorded series says."""
        if self.mode in RANKS:
            job = {
                "parameter_bytes": self.model_bytes,
                "bandwidth_mbit": self.bandwidth_mbit,
                "compute_s": round(self.compute_s, 6),
                "cv": self.cv,
                "tcp": self.congestion_control or "",
                "latency_ms": self.buffer_ms,
                "framework": RANKS[self.mode],
            }
            if self.mode != "fsdp":
                return job | {"tensors": sum(len(la.tensor_bytes) for la in self.layers), "bucket_mb": self.bucket_mb}
            return job | {
                "units": len(self.layers),
                "optimizer_s": self.optimizer_s,
                "shards": self.shards or "all",
                "ranks_per_node": self.ranks_per_node,
                "reshard_after_forward": self.reshard,
                "separate_group": self.separate_group,
                "input_buffers": self.input_buffers,
            }
        return {
            "model_bytes": self.model_bytes,
            "bandwidth_mbit": self.bandwidth_mbit,
            "parameter_servers": self.parameter_servers,
            "compute_s": round(self.compute_s, 6),
            "cv": self.cv,
            "mode": self.mode,
        }


def workload_text(path: Path) -> str:
    """A workload file's text; a packed series has its own."""
    if not path.name.endswith(PACKED):
        return path.read_text()
    with tarfile.open(path) as packed:
        member = packed.extractfile("workload.json")
        return member.read().decode() if member else ""


def read_workload(path: str | Path) -> Workload:
    """
    Read a workload file, or that of a recorded series.

    Raises
    ------
    TestbedError
        The file cannot be read, has unknown keys, or asks for what the testbed cannot do.
    """
    try:
        content = json.loads(workload_text(Path(path)))
        layers = tuple(
            Layer(**{k: tuple(v) if isinstance(v, list) else v for k, v in layer.items()})
            for layer in content.pop("layers")
        )
        workload = Workload(layers=layers, **content | {"changes": tuple(content.get("changes", ()))})
        changed = [replace(workload, **change) for change in workload.changes]
    except OSError as error:
        raise TestbedError(f"{path}: {error.strerror}") from None
    except (ValueError, TypeError, KeyError, AttributeError, tarfile.TarError) as error:
        known = ", ".join(f.name for f in fields(Workload))
        raise TestbedError(f"{path}: not a workload ({error}); its keys are {known}") from None
    for problem in (problem for one in (workload, *changed) for problem in _problems(one)):
        raise TestbedError(f"{path}: {problem}")
    return workload


def _asks(workload: Workload, names: tuple[str, ...]) -> bool:
    """Whether any of these fields is not as it is when left out."""
    return any(f.name in names and getattr(workload, f.name) != f.default for f in fields(workload))


def _perceptron(layers: tuple[Layer, ...]) -> bool:
    """Whether these are two layers of weights and biases, each eighth of all parameters signs of whole bytes."""
    if [len(layer.tensor_bytes) for layer in layers] != [2, 2]:
        return False
    (first, hidden), (second, classes) = ([size // 4 for size in layer.tensor_bytes] for layer in layers)
    return first % hidden == 0 and second == hidden * classes and (first + hidden + second + classes) % 64 == 0


def _problems(w: Workload) -> list[str]:
    """Everything the testbed cannot do with this workload, as one line each."""
    rates = [w.bandwidth_mbit, *w.host_bandwidth_mbit.values()]
    rates += [w.slow_link_mbit] if w.slow_link_mbit else []
    sizes = [size for layer in w.layers for size in layer.tensor_bytes]
    times = [t for layer in w.layers for t in (layer.forward_s, layer.backward_s)]
    names = [layer.name for layer in w.layers]
    checks = [
        (names and len(set(names)) == len(names), f"layers need different names, got {names}"),
        (all(0 < r <= 200 for r in rates), f"rates must be in (0, 200] Mbit/s, got {rates}"),
        (all(s >= 4 and s % 4 == 0 for s in sizes), "tensor_bytes must be positive multiples of 4 (float32)"),
        (all(math.isfinite(t) and t >= 0 for t in times), f"times must be finite and >= 0 s, got {times}"),
        (0 < w.cv < 1, f"cv must be in (0, 1), got {w.cv}"),
        (1 <= w.parameter_servers <= 4, f"parameter_servers must be 1 to 4, got {w.parameter_servers}"),
        (w.mode in MODES, f"mode must be one of {', '.join(MODES)}, got {w.mode!r}"),
        (0 < w.awaited <= 1, f"awaited must be in (0, 1], got {w.awaited}"),
        (w.awaited == 1 or w.mode in OF_RESULTS, f"awaited needs mode {', '.join(OF_RESULTS)}, got {w.mode!r}"),
        (w.staleness_bound >= 0, f"staleness_bound must be at least 0, got {w.staleness_bound}"),
        (not w.staleness_bound or w.mode == BOUNDED, f"staleness_bound needs mode {BOUNDED!r}, got {w.mode!r}"),
        (w.mode != "ddp" or w.bucket_mb > 0, f"mode 'ddp' needs bucket_mb > 0, got {w.bucket_mb}"),
        (0 <= w.bucket_mb <= 1000, f"bucket_mb must be in [0, 1000], got {w.bucket_mb}"),
        (w.order in ("", "layer"), f"order must be '' or 'layer', got {w.order!r}"),
        (w.queue in ("", *QUEUES), f"queue must be '', {', '.join(map(repr, QUEUES))}, got {w.queue!r}"),
        (1 <= w.buffer_ms <= 200, f"buffer_ms must be in [1, 200], got {w.buffer_ms}"),
        (
            not w.learn or (w.mode == "ddp" and set(w.learn) == LEARNT and min(w.learn.values()) > 0),
            f"learn needs mode 'ddp' and {', '.join(sorted(LEARNT))}, each > 0, got {w.learn}",
        ),
        (not w.learn or _perceptron(w.layers), "learn needs the layers of a perceptron (see README.md)"),
        (w.slow_worker > 0, f"slow_worker must be a factor > 0, got {w.slow_worker}"),
        (0 <= w.other_traffic < 1, f"other_traffic must be a share of a link below 1, got {w.other_traffic}"),
        (
            all(host.rstrip("0123456789") in ("ps", "worker") for host in w.other_traffic_hosts),
            f"other_traffic_hosts must be hosts such as 'ps0' or 'worker1', got {w.other_traffic_hosts}",
        ),
        (w.accelerator > 0, f"accelerator must be a factor > 0, got {w.accelerator}"),
        (w.precision in ("single", "half"), f"precision must be 'single' or 'half', got {w.precision!r}"),
        (
            min(w.accumulation, w.ranks_per_node, w.input_buffers) >= 1 and w.shards >= 0 and w.optimizer_s >= 0,
            "accumulation, ranks_per_node and input_buffers must be at least 1, shards and optimizer_s at least 0",
        ),
        (
            not _asks(w, OF_TORCH) or (w.mode in ("ddp", "fsdp") and not w.learn),
            f"{', '.join(OF_TORCH)} need mode 'ddp' or 'fsdp' without learn, got {w.mode!r}",
        ),
        (not w.changes or w.mode in RANKS, f"changes need a mode without servers, got {w.mode!r}"),
        (not _asks(w, OF_FSDP) or w.mode == "fsdp", f"{', '.join(OF_FSDP)} need mode 'fsdp', got {w.mode!r}"),
        (
            all(len(p) == len(la.tensor_bytes) for p, la in zip(w.servers(), w.layers, strict=True)),
            "servers must name one server per tensor of the layer",
        ),
        (
            all(0 <= s < w.parameter_servers for p in w.servers() for s in p),
            f"servers must be 0 to {w.parameter_servers - 1}",
        ),
    ]
    return [line for good, line in checks if not good]
