"""What one worker's trace shows of connections that fell silent: transfers that came late."""

from __future__ import annotations

import numpy as np

from ..training.profile import Profile
from .links import busy_periods, estimate_links


def late_arrivals(profile: Profile) -> np.ndarray:
    """
    How much longer one worker's recorded transfers took than their bytes do.

    A connection that loses a packet, and what is sent in its place, is silent for 0.2 s or more; what it has left then
    comes after all else. Under BBR that befalls one that has a link to itself now and then, and several servers'
    connections, which meet on the worker's link, more often; under control by losses hardly ever. Several workers
    suffer it at every link, but their traces do not tell it from waiting.

    Returns
    -------
    ndarray, shape (n,)
        Seconds, for each busy period with at least half of the bytes of the largest; about 0 where nothing was late.

    Raises
    ------
    DataError
        When the profile has no recorded transfers.

    Examples
    --------
    >>> from queuemodel.training import Cluster, Job, Operation, Profile, Source, Step
    >>> steps = [Step(step_time=1, fetch=0.2, compute=0, push=0, update=0, fetched_bytes=2_000_000, pushed_bytes=0,
    ...               operations=[Operation("fetch", "a", 0.0, 0.2, 1_000_000),
    ...                           Operation("fetch", "b", 0.0, 0.2 + late, 1_000_000, server=1)])
    ...          for late in (0.0,) * 9 + (0.3,)]
    >>> profile = Profile(source=Source(framework="by hand"), cluster=Cluster(parameter_servers=2), steps=steps,
    ...                   job=Job(batch_size=1, parameter_bytes=2_000_000, tensors=2))
    >>> late_arrivals(profile).round(2)
    array([0. , 0. , 0. , 0. , 0. , 0. , 0. , 0. , 0. , 0.3])
    """
    links = estimate_links(profile)
    late = []
    for kind, link in (("fetch", links.transmit), ("push", links.receive)):
        steps = [[o for o in step.operations if o.kind == kind and o.bytes > 0] for step in profile.steps]
        periods = [period for transfers in steps for period in busy_periods(transfers)]
        sizes = [sum(o.bytes for o in period) for period in periods]
        for period, size in zip(periods, sizes, strict=True):
            if size >= 0.5 * max(sizes):
                took = max(o.end for o in period) - min(o.start for o in period)
                late.append(took - max(link.start_time, 0.0) - len(period) * link.tensor_time - size / link.rate)
    return np.array(late)
