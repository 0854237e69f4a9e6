"""Everything about a simulation that does not depend on the number of workers, done once."""

from __future__ import annotations

from dataclasses import dataclass

from ..checks import require_choice, require_count
from ..errors import ModelError
from ..training.bandwidth import carried_for_several
from ..training.job import require_bandwidth
from ..training.profile import Profile
from .graph import pack
from .kernel.state import Steps
from .links import Links, at_bandwidth, estimate_links
from .policies import POLICIES, Policy, ranks
from .sharding import SHARDINGS, Sharding, shard


@dataclass(frozen=True, eq=False)
class Graphs:
    """A profile made ready to be simulated many times; takes its place in `simulate`."""

    profile: Profile
    steps: Steps
    links: Links
    parameter_servers: int
    policy: Policy
    bandwidth: float | None = None  # asked for
    carried: tuple[float, float] | None = None  # by servers' links, where one worker does not fill them


def prepare(
    profile: Profile,
    *,
    parameter_servers: int | None = None,
    bandwidth: float | None = None,
    policy: Policy = "tensorflow",
    sharding: Sharding = "round-robin",
    links: Links | None = None,
) -> Graphs:
    """Turn a profile into packed graphs, on links and servers that may be others than the profiled ones.

    Arguments and errors are those of `simulate`.
    """
    require_choice(policy, "simulate: policy", POLICIES)
    require_choice(sharding, "simulate: sharding", SHARDINGS)
    profiled = profile.cluster.parameter_servers
    K = (
        profiled
        if parameter_servers is None
        else require_count(parameter_servers, "simulate: parameter_servers", most=1000)
    )
    carried = None if links else carried_for_several(profile, bandwidth)
    links = links or estimate_links(profile, errors=False)
    if bandwidth is not None:
        require_bandwidth(bandwidth, "simulate: bandwidth", error=ModelError)
        links = at_bandwidth(links, profile, bandwidth)
    extra = (links.transmit.tensor_time * links.transmit.rate, links.receive.tensor_time * links.receive.rate)
    starts = (max(links.transmit.start_time, 0.0), max(links.receive.start_time, 0.0))
    dealt = None if profiled == K else shard(profile, K, sharding)
    steps = pack(
        profile,
        parameter_servers=K,
        tensor_bytes=extra,
        start_times=starts,
        ranks=ranks(profile, policy, links),
        servers=dealt,
    )
    return Graphs(profile, steps, links, K, policy, bandwidth, carried)
