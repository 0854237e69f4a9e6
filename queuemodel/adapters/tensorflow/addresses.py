"""Servers that run elsewhere, from the command line or from TF_CONFIG."""

from __future__ import annotations

import json
import os
import socket
import time

from ...errors import DataError, ProfilingError
from ..live.addresses import split_address


def is_here(address: str) -> bool:
    """Whether ``HOST:PORT`` is this machine's: only its own addresses can be listened at."""
    host = split_address(address, where="address")[0].strip("[]")
    try:
        family, *_, socket_address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            listener.bind(socket_address)
    except OSError:
        return False
    return True


def servers_elsewhere(ps: str | None, worker: str | None) -> dict[str, str] | None:
    """
    Addresses of a parameter server and a worker that already run, or None: start them here.

    Where neither is given, the first of each in the environment's TF_CONFIG are taken, if that is set.
    """
    if ps is None and worker is None:
        return _from_environment()
    if ps is None or worker is None:
        missing, given = ("ps", "worker") if ps is None else ("worker", "ps")
        raise DataError(f"{missing}: give both ps and worker, or neither to start them here; got only {given}")
    for where, address in (("ps", ps), ("worker", worker)):
        split_address(address, where=where)
    if ps == worker:
        raise DataError(f"worker: must not be the parameter server's address, got {worker!r} for both")
    return {"ps": ps, "worker": worker}


def _from_environment() -> dict[str, str] | None:
    text = os.environ.get("TF_CONFIG", "").strip()
    if not text:
        return None
    try:
        cluster = json.loads(text).get("cluster", {})
        found = {job: cluster[job][0] for job in ("ps", "worker") if cluster.get(job)}
    except (ValueError, AttributeError, TypeError, KeyError) as error:
        raise DataError(
            f"TF_CONFIG: not the JSON object that TensorFlow documents ({error}); unset or correct it"
        ) from None
    if len(found) < 2:
        raise DataError(
            f"TF_CONFIG: cluster needs at least one 'ps' and one 'worker', got {sorted(cluster)}; "
            "unset it to profile here"
        )
    return servers_elsewhere(found["ps"], found["worker"])


def require_answer(job: str, address: str, *, seconds: float) -> None:
    """Refuse to start with a server that nobody answers for (raises ProfilingError)."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(
                (host.strip("[]"), int(port)), timeout=max(0.1, deadline - time.monotonic())
            ).close()
            return
        except OSError as error:
            reason = error.strerror or str(error)
        if time.monotonic() > deadline - 0.5:
            raise ProfilingError(
                f"{job} {address}: no answer within {seconds:g} s ({reason}); start it there with "
                f"'queuemodel serve --job {job} --ps HOST:PORT --worker HOST:PORT'"
            )
        time.sleep(0.25)
