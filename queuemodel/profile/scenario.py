"""The question about a job: machines, network and way of training, where they differ from what was profiled.

Options, checks, refusals and the settings of a workload's jobs follow from the metadata of its fields. There is also a
field's effect on a profile, if it has one: every model then covers it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import Field, dataclass, field, fields, replace
from functools import partial
from itertools import islice
from typing import Any, TypedDict, Unpack

from ..base.checks import MOST_EXAMPLES, nearest, require_choice, require_count, require_number, require_share
from ..base.errors import DataError, ModelError
from ..base.files import count_in, number_in, or_zero, parse_bandwidth, parse_latency, parse_size, share_in
from ..transport.sharing import CONGESTION_CONTROLS, LONGEST_BUFFER
from ..transport.trees import COLLECTIVES
from .gathers import read_gathers, require_gathers
from .job import require_bandwidth
from .profile import Profile
from .records import MOST_BYTES, MOST_SERVERS
from .synchronization import MOST_RESULTS, SYNCHRONIZATIONS, Synchronization

#: More different workers than these take minutes.
MOST_SPEEDS = 2000
#: A larger factor is a typing mistake.
LARGEST_FACTOR = 1e15
#: Ways of training that keep shards of the parameters.
SHARDED = ("fsdp", "hsdp", "zero-1")
STRATEGIES = (*SYNCHRONIZATIONS, "all-reduce", *SHARDED)
#: How else ways of training are called, with their names or what to do.
CALLED = {
    "async": "async-ps", "sync": "sync-ps", "ssp": "bounded-staleness", "ps": "give async-ps, or sync-ps for rounds",
    **dict.fromkeys(("ddp", "horovod", "nccl", "data-parallel", "mirrored", "allreduce"), "all-reduce"),
    **dict.fromkeys(("fsdp1", "fsdp2", "zero3", "zero-3", "deepspeed"), "fsdp"),
    **dict.fromkeys(("zero1", "zero2", "zero-2"), "zero-1"),
    "zero": "give fsdp for stage 3, zero-1 for stages 1 and 2",
}  # fmt: skip
CALLED["parameter-server"] = CALLED["parameter-servers"] = CALLED["ps"]
#: The number that a way of training has, by its name.
NUMBERS = {name: row.number for name, row in SYNCHRONIZATIONS.items() if row.number}
#: How gradients are put together and sent, how a connection orders tensors, how these are dealt to servers.
SCHEME_NAMES = ("ddp", "horovod", "tf-ring", "p3", "bytescheduler")
TRANSFER_ORDERS = ("tensorflow", "random", "multiplexed", "in-order", "reverse", "tic", "tac")
SHARDINGS = ("round-robin", "greedy")
#: Bytes of a gradient over those of single precision; bytes of a parameter that is gathered.
GRADIENT_PRECISIONS = {"half": 0.5}
PRECISIONS = {"bf16": 2, "fp16": 2, "fp32": 4}
#: Sections of the options' help.
SYNC, SIMULATION = "Synchronization", "Simulation"
#: Of the closed network: separate transmit link, receive link and update stations, or one for all three.
NETWORK_FORMS = ("links", "single")


@dataclass(frozen=True)
class Kind:
    """A kind of value: its name in usages, its check, its reader of text, and its choices where it has some."""

    name: str
    check: Callable[[Any, str], Any]
    read: Callable[[str], Any] = str
    names: tuple[str, ...] = ()
    most: int = 0  # of a list: so many of them at most
    called: Mapping[str, str] = field(default_factory=dict)  # how else they are called

    def __call__(self, value: Any, what: str) -> Any:
        """The value in SI units, or a `ModelError` that names it."""
        if not self.most:
            return self.one(value, what)
        if not isinstance(value, Iterable) or isinstance(value, str | bytes):
            raise ModelError(f"{what} must be a list of numbers, got {value!r}")
        values = tuple(self.one(each, what) for each in islice(value, self.most + 1))
        if not 1 <= len(values) <= self.most:
            raise ModelError(f"{what} must be 1 to {self.most:,} numbers, got {'more' if values else 'none'}")
        return values

    def one(self, value: Any, what: str) -> Any:
        try:
            return self.check(self.read(value) if isinstance(value, str) else value, what)
        except DataError as error:
            raise ModelError(f"{what}: {error}") from None


def count(most: int, least: int = 1) -> Kind:
    return Kind("count", partial(require_count, least=least, most=most), count_in)


def choice(names: Iterable[str], called: Mapping[str, str] | None = None) -> Kind:
    check = partial(require_choice, choices=tuple(names), called=called)
    return Kind("name", check, names=tuple(names), called=called or {})


POSITIVE = Kind("number", partial(require_number, positive=True, largest=LARGEST_FACTOR), number_in)
SHARE = Kind("share", require_share, share_in)
LINK = Kind("bandwidth", partial(require_bandwidth, error=ModelError), parse_bandwidth)
SIZE = Kind("size", partial(require_number, positive=True, unit="bytes", largest=MOST_BYTES), parse_size)
FLAG = Kind("flag", partial(require_choice, choices=(True, False)))
SWITCH = Kind("yes|no", FLAG.check, lambda text: {"yes": True, "no": False}.get(text, text))


def seconds(largest: float) -> Kind:
    """A short duration; 0 needs no unit."""
    return Kind("duration", partial(require_number, unit="seconds", largest=largest), or_zero(parse_latency))


def _traffic(value: Any, what: str) -> Any:
    """A share of a link below 1, or bytes per second."""
    number = require_number(value, what, largest=LARGEST_FACTOR)
    return number if number < 1.0 else require_bandwidth(number, f"{what} is a share below 100 %, or", error=ModelError)


WORKER_SPEEDS = replace(POSITIVE, name="speed[*COUNT],...", most=MOST_SPEEDS)
WORKER_LINKS = replace(LINK, name="bandwidth[*COUNT],...", most=MOST_SPEEDS)
GATHERS = Kind("file", require_gathers, read_gathers)
TRAFFIC = Kind("share|bandwidth", _traffic, lambda text: (share_in if "%" in text else or_zero(parse_bandwidth))(text))


def _algorithm(names: Iterable[str], method: str) -> Kind:
    """One of several names, or a value with such a method."""
    known = tuple(names)

    def check(value: Any, what: str) -> Any:
        if isinstance(value, str):
            return require_choice(value, what, known)
        if isinstance(value, type) or not callable(getattr(value, method, None)):
            raise ModelError(f"{what} must be one of {', '.join(known)} or an algorithm, got {value!r}")
        return value

    return Kind("name", check, names=known)


SCHEME, COLLECTIVE = _algorithm(SCHEME_NAMES, "schedule"), _algorithm(COLLECTIVES, "time")
#: What the help of a group's fields begins with.
APPLIES_TO = {"rounds": "all-reduce: ", "sharded": "fsdp, hsdp: ", "simulation": "Simulation: "}


def _ask(
    group: str, section: str, help: str, kind: Kind, effect: Callable[[Profile, Any], Profile] | None = None
) -> Any:
    """A field: the group of commands' options that it is of, its section in their help (*: in the short one, too)."""
    about = {"section": section.rstrip("*"), "common": section.endswith("*"), "help": APPLIES_TO.get(group, "") + help}
    return field(default=None, metadata={"group": group, "kind": kind, "effect": effect, **about})


_table, _machine, _round, _sharded, _network = (
    partial(_ask, group) for group in ("throughputs", "machines", "rounds", "sharded", "network")
)
_job, _simulated = partial(_ask, "job", SYNC), partial(_ask, "simulation", SIMULATION)


class Changes(TypedDict, total=False):
    """Fields of `Scenario`, by keyword: texts may have units, like ``"10Gbit/s"``."""

    strategy: str | None
    k: int | None
    backup_workers: int | None
    staleness_bound: int | None
    form: str | None
    parameter_bytes: float | str | None
    sparse_gradients: bool | None
    parameters: float | str | None
    layers: int | None
    precision: str | None
    gathers: object | None
    parameter_servers: int | None
    shards: Iterable[float] | None
    bandwidth: float | str | None
    other_traffic: float | str | None
    accelerator_speed: float | None
    worker_speeds: Iterable[float] | None
    batch_size: int | None
    latency: float | str | None
    bucket_bytes: float | str | None
    scheme: str | object | None
    collective: str | object | None
    accumulation: int | None
    gradient_precision: str | None
    gpus_per_node: int | None
    ranks_per_node: int | None  # the same
    inside_bandwidth: float | str | None
    shard_group: int | None
    reshard: bool | None
    prefetch: int | None
    batches_ahead: int | None
    nodes_per_rack: int | None
    oversubscription: float | None
    transfer_order: str | None
    sharding: str | None
    straggler_probability: float | None
    straggler_slowdown: float | None
    worker_bandwidth: Iterable[float | str] | None
    congestion_control: str | None
    buffer: float | str | None


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A question about a job; None is as profiled."""

    strategy: str | None = _ask("job", SYNC + "*", "How workers synchronize.", choice(STRATEGIES, CALLED))
    k: int | None = _job("k-sync, k-async and their batch forms: results per update.", count(MOST_RESULTS))
    backup_workers: int | None = _job(
        "sync-ps: workers whose results a round does not wait for.", count(MOST_RESULTS, 0)
    )
    staleness_bound: int | None = _job(
        "bounded-staleness: steps that a worker may be ahead of the slowest.", count(MOST_RESULTS, 0)
    )
    form: str | None = _ask(
        "form", SIMULATION, "Stations of a server: transmit link, receive link and update, or a single one.",
        choice(NETWORK_FORMS),
    )  # fmt: skip
    parameter_bytes: float | None = _table("Job", "Throughputs alone: size of all parameters, like 98MB.", SIZE)
    sparse_gradients: bool | None = _table(
        "Job", "Throughputs of sync-ps or all-reduce alone: most parameters are embeddings.", FLAG
    )
    parameters: float | None = _table(
        "Job", "Tables of fsdp, hsdp and zero-1: number of parameters, like 7e9.", POSITIVE
    )
    layers: int | None = _table("Job", "The same: layers whose parameters are gathered together.", count(10_000))
    precision: str | None = _table("Job", "The same: of gathered parameters.", choice(PRECISIONS))
    gathers: object | None = _table(
        "Network", "The same: CSV of all-gathers measured on the cluster (bytes,nodes,time).", GATHERS
    )
    parameter_servers: int | None = _machine("Cluster*", "Number of parameter servers.", count(MOST_SERVERS))
    shards: tuple[float, ...] | None = _ask(
        "shards", "Cluster", "Relative sizes of the servers' shards, if uneven.", replace(POSITIVE, most=MOST_SERVERS)
    )
    bandwidth: float | None = _machine("Network*", "Bandwidth of each node's link, like 10Gbit/s.", LINK)
    other_traffic: float | None = _machine(
        "Network", "Other traffic on these links: a share like 30%, or a bandwidth.", TRAFFIC
    )
    accelerator_speed: float | None = _machine(
        "Cluster", "Relative speed of the accelerators; 2 halves the computation.", POSITIVE
    )
    worker_speeds: tuple[float, ...] | None = _machine(
        "Cluster", "Relative speed of each worker; 1*4,0.5 halves it from the 5th on.", WORKER_SPEEDS
    )
    batch_size: int | None = _machine("Job*", "Mini-batch size per worker.", count(MOST_EXAMPLES))
    latency: float | None = _round("Network", "time per message, like 50us.", seconds(1e9))
    bucket_bytes: float | None = _round(SYNC, "largest bucket, like 25MB.", SIZE)
    scheme: str | object | None = _round(SYNC, "how a framework groups gradients and sends them.", SCHEME)
    collective: str | object | None = _round(SYNC, "algorithm of the collective.", COLLECTIVE)
    accumulation: int | None = _round(SYNC, "steps between two reductions.", count(10_000))
    gradient_precision: str | None = _round(SYNC, "half precision halves gradients.", choice(GRADIENT_PRECISIONS))
    gpus_per_node: int | None = _round("Cluster*", "GPUs, or ranks, per node.", count(10_000))
    inside_bandwidth: float | None = _round("Network", "bandwidth between ranks of a node.", LINK)
    shard_group: int | None = _sharded("Cluster", "ranks that share a copy of the model; 0: all.", count(10**6, 0))
    reshard: bool | None = _sharded(SYNC, "no to gather parameters once a step (ZeRO-2).", SWITCH)
    prefetch: int | None = _sharded(
        SYNC, "units gathered ahead of the one that computes; 0: each when it is needed.", count(1000, 0)
    )
    batches_ahead: int | None = _round("Job", "batches that each rank's loader keeps ready; 2 as profiled.", count(100))
    nodes_per_rack: int | None = _round("Network", "nodes per rack; requires --oversubscription.", count(10**6))
    oversubscription: float | None = _round("Network", "bandwidth of a rack's nodes over that of its uplink.", POSITIVE)
    transfer_order: str | None = _simulated("order in which tensors are sent.", choice(TRANSFER_ORDERS))
    sharding: str | None = _simulated("how tensors are assigned to another number of servers.", choice(SHARDINGS))
    straggler_probability: float | None = _simulated("probability that a computation is slowed down.", SHARE)
    straggler_slowdown: float | None = _simulated("factor of such a slowdown.", POSITIVE)
    worker_bandwidth: tuple[float, ...] | None = _ask(
        "simulation", "Network",
        "payload bandwidth of each worker's link; 50Mbit/s*3,20Mbit/s lowers it from the 4th on.", WORKER_LINKS,
    )  # fmt: skip
    congestion_control: str | None = _network(
        "Network", "TCP congestion control of the nodes.", choice(CONGESTION_CONTROLS), Profile.with_network
    )
    buffer: float | None = _network(
        "Network", "Longest delay in a link's queue, like 12ms; 0 for a queue per connection (fq_codel).",
        seconds(LONGEST_BUFFER), lambda p, seconds: p.with_network(buffer=seconds),
    )  # fmt: skip

    def __post_init__(self) -> None:
        self._take(self.specified)

    def _take(self, values: dict[str, Any]) -> None:
        """Set fields to what their kinds make of the values."""
        for name, value in values.items():
            object.__setattr__(self, name, None if value is None else FIELD_KINDS[name](value, name))
        if "shards" in values and self.shards is not None:
            if self.parameter_servers not in (None, len(self.shards)):
                raise ModelError(f"{len(self.shards)} shards do not fit {self.parameter_servers} parameter_servers")
            object.__setattr__(self, "shards", tuple(weight / sum(self.shards) for weight in self.shards))
        for one, other in PAIRS:
            if one in values and getattr(self, one) is not None and getattr(self, other) is None:
                raise ModelError(f"{one} requires {other}; give both")
        if self.gpus_per_node is not None and getattr(self.collective, "ranks_per_node", 1) > 1:
            raise ModelError("collective determines the ranks per node; leave gpus_per_node out")

    @property
    def specified(self) -> dict[str, Any]:
        """Values that differ from the profile, by name."""
        return {name: value for name in FIELDS if (value := getattr(self, name)) is not None}

    @property
    def synchronization(self) -> Synchronization:
        """How workers on parameter servers wait for each other."""
        name = self.strategy or "async-ps"
        what = NUMBERS.get(name, "")
        number = getattr(self, what) if what else 0
        if number is None and what != "backup_workers":
            raise ModelError(f"strategy {name!r} needs {what}; give it")
        return Synchronization(name, number or 0)

    def link_bandwidth(self, nominal: float | None) -> float | None:
        """Bytes per second that other traffic leaves of each link, ``nominal`` unless specified; None: as profiled.

        Traffic that does not give way, as datagrams: the job's connections share the rest.
        """
        left, other = self.bandwidth or nominal, self.other_traffic
        if other:
            if left is None:
                raise ModelError("other_traffic needs the bandwidth of the links; specify bandwidth")
            if other >= left:
                raise ModelError(f"other_traffic must be less than the links' {left:.4g} B/s, got {other:.4g} B/s")
            left = left * (1.0 - other) if other < 1.0 else left - other
        return None if left == nominal else left

    def on(self, profile: Profile) -> tuple[Profile, Scenario]:
        """The profile with this scenario's effects, and its other specified values that differ from the machines'."""
        own: dict[str, Any] = {"bandwidth": profile.cluster.bandwidth, "batch_size": profile.job.batch_size}
        if self.sharding is None:
            own["parameter_servers"] = profile.cluster.parameter_servers
        for name, value in self.of(EFFECTS).items():
            profile, own[name] = EFFECTS[name](profile, value), value
        return profile, self.relative_to(own)

    def relative_to(self, own: Mapping[str, Any]) -> Scenario:
        """This scenario without the values that the machines have anyway."""
        return replace(self, **{name: None for name, value in own.items() if getattr(self, name) == value})

    def of(self, names: Iterable[str]) -> dict[str, Any]:
        """The fields of these names that differ from the profile."""
        return {name: value for name, value in self.specified.items() if name in names}

    def updated(self, **changes: Unpack[Changes]) -> Scenario:
        """This question with changes: factors of the accelerator's speed multiply, everything else replaces."""
        named: dict[str, Any] = {SYNONYMS.get(name, name): value for name, value in changes.items()}
        new = {n: v for n, v in named.items() if v is not None and (v is not False or n == "reshard")}
        if unknown := [name for name in new if name not in FIELDS]:
            near = nearest(unknown[0], [*FIELDS, *ARGUMENTS]) if unknown[0] not in ARGUMENTS else ", nor known here"
            raise ModelError(f"{unknown[0]} is not a field of Scenario{near}")
        if "accelerator_speed" in new and self.accelerator_speed is not None:
            speed = self.accelerator_speed * POSITIVE(new["accelerator_speed"], "accelerator_speed")
            new["accelerator_speed"] = 1.0 if math.isclose(speed, 1.0) else speed  # a factor undone, but for rounding
        if "shards" in new:
            new = {"parameter_servers": None} | new
        elif "parameter_servers" in new:
            new["shards"] = None
        changed = copy(self)
        changed._take(new)
        return changed


#: What `predict`, `simulate` and curves take besides.
ARGUMENTS = ("workers", "method", "throughputs", "confidence", "seed", "progress", "steps")
#: How else fields are called.
SYNONYMS = {"ranks_per_node": "gpus_per_node"}
#: Fields that go together.
PAIRS = (
    ("precision", "parameters"), ("gathers", "parameters"), ("inside_bandwidth", "gpus_per_node"),
    ("nodes_per_rack", "oversubscription"), ("oversubscription", "nodes_per_rack"),
    ("straggler_probability", "straggler_slowdown"), ("straggler_slowdown", "straggler_probability"),
)  # fmt: skip
FIELDS: dict[str, Field[Any]] = {one.name: one for one in fields(Scenario)}
FIELD_KINDS: dict[str, Kind] = {name: one.metadata["kind"] for name, one in FIELDS.items()}
EFFECTS = {name: effect for name, one in FIELDS.items() if (effect := one.metadata["effect"])}

Scenario.__doc__ = f"{Scenario.__doc__}\n\n    Attributes\n    ----------\n" + "".join(
    f"    {name} : {one.metadata['kind'].name}\n        {one.metadata['help']}\n".replace("*", "\\*")
    for name, one in FIELDS.items()
)


def of_group(group: str) -> tuple[str, ...]:
    return tuple(name for name, one in FIELDS.items() if one.metadata["group"] == group)


def require_answered(changes: Iterable[str], answered: Iterable[str], what: str) -> None:
    """Refuse a change that a model does not cover."""
    if unknown := next((name for name in changes if SYNONYMS.get(name, name) not in answered), None):
        raise ModelError(f"{unknown} is not a change {what}; specify {', '.join(sorted(answered))}")
