"""Profiles that tests make up: a step of 0.81 s, or what they say instead."""

import msgspec

import queuemodel as qm


def step(fetch=0.2, compute=0.5, push=0.1, update=0.01, overlap=0.0, idle=0.0):
    seconds = {"fetch": fetch, "compute": compute, "push": push, "update": update}
    step_time = sum(seconds.values()) - overlap + idle
    return qm.Step(step_time=step_time, fetched_bytes=2_000_000, pushed_bytes=1_000_000, overlap=overlap, **seconds)


def profile(steps=None, *, throughputs=(), hosts=None, bandwidth=None, servers=1, workers=1, batch_size=32):
    return qm.Profile(
        source=qm.Source(framework="test", hosts=hosts or {}),
        cluster=qm.Cluster(workers=workers, parameter_servers=servers, bandwidth=bandwidth),
        job=qm.Job(name="job", batch_size=batch_size, parameter_bytes=2_000_000, tensors=8, dataset_size=64_000),
        steps=[step()] * 5 if steps is None else steps,
        throughputs=list(throughputs),
    )


def on_network(recorded, congestion_control, buffer=None):
    """The same job on a network of which this is known."""
    known = {"congestion_control": congestion_control, "buffer": buffer}
    return msgspec.structs.replace(recorded, cluster=msgspec.structs.replace(recorded.cluster, **known))


def parameter(model, name):
    """The fitted parameter of this name."""
    return next(one for one in model.parameters if one.name == name)
