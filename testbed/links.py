"""Links with queues of our own between tun devices: `fq_codel`, a policer, and one that drops what comes last."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from .queues import SLOT, arrive, empty_links, leave, no_packets, release

FRAME = 14  # bytes of Ethernet's header, which rates count
SLOTS = 1 << 15  # packets that wait at most, in all queues
TUNSETIFF, IFF_TUN, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 1, 0x1000, 0x40000000
POLLIN, MONOTONIC = 1, 1

_libc = ctypes.CDLL(None, use_errno=True)
_read, _write, _ppoll, _clock = _libc.read, _libc.write, _libc.ppoll, _libc.clock_gettime
for _function in (_read, _write):
    _function.argtypes, _function.restype = (ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t), ctypes.c_ssize_t
_ppoll.argtypes, _ppoll.restype = (ctypes.c_size_t, ctypes.c_ulong, ctypes.c_size_t, ctypes.c_size_t), ctypes.c_int
_clock.argtypes, _clock.restype = (ctypes.c_int, ctypes.c_size_t), ctypes.c_int


def tun(namespace: Path) -> int:
    """A tun device called eth0 in a network namespace; the descriptor that its packets come from and go to."""

    def make() -> int:
        with namespace.open() as there:
            if _libc.setns(there.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"eth0", IFF_TUN | IFF_NO_PI))
        return device

    with ThreadPoolExecutor(1) as elsewhere:  # this thread alone goes to that namespace
        return elsewhere.submit(make).result()


@contextlib.contextmanager
def linked(
    devices: Sequence[int],
    octets: Sequence[int],
    rates: Sequence[float],
    *,
    bursts: Sequence[float],
    most: Sequence[float],
) -> Iterator[Callable[[int], dict[str, dict[str, Any]]]]:
    """
    Carry packets between tun devices while the context lasts: out by a link of each, in by another's.

    Every host has a link in each direction, with a token bucket and the queues of `queues`.

    Parameters
    ----------
    devices, octets : sequence of int
        Of each host: descriptor, and last byte of its address.
    rates : sequence of float
        Bytes per second of each host's link, Ethernet's headers included.
    bursts, most : sequence of float
        Bytes that the token buckets of each host's link hold, and that may wait besides: infinite for `fq_codel`, 0 for
        a policer.

    Yields
    ------
    callable
        Counters of a host's two links so far: bytes, packets, drops and backlog (bytes), of "transmit" and "receive".
    """
    links, flows = empty_links(*np.repeat([rates, bursts, most], 2, axis=1))
    places = np.full(256, -1, np.int64)
    places[list(octets)] = range(len(octets))
    stop = np.zeros(1, np.int64)
    arguments = (np.array(devices, np.int64), places, links, flows, no_packets(SLOTS), stop)
    _carry(*arguments[:-1], np.ones(1, np.int64))  # compiled before the first packet comes

    def carry() -> None:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))  # this thread: before whatever else runs
        _carry(*arguments)

    thread = threading.Thread(target=carry, daemon=True)
    thread.start()
    try:
        yield lambda host: {
            way: {name: int(links[name][2 * host + i]) for name in ("bytes", "packets", "drops", "backlog")}
            for i, way in enumerate(("transmit", "receive"))
        }
    finally:
        stop[0] = 1
        thread.join()


@njit(nogil=True)
def _now(moment: np.ndarray) -> float:
    _clock(MONOTONIC, moment.ctypes.data)
    return moment[0] + 1e-9 * moment[1]


@njit(nogil=True)
def _carry(devices, places, links, flows, packets, stop):
    """Read, queue, serve and write packets until `stop`."""
    base, free = packets.data.ctypes.data, packets.free
    polled = np.zeros((len(devices), 2), np.int32)  # struct pollfd
    polled[:, 0], polled[:, 1] = devices, POLLIN
    moment, patience = np.zeros(2, np.int64), np.zeros(2, np.int64)
    while not stop[0]:
        now, wait = _now(moment), 0.1
        for host in range(len(devices)):
            while polled[host, 1] >> 16 and free[-1]:
                slot = free[free[-1] - 1]
                size = _read(devices[host], base + slot * SLOT, SLOT)
                if size <= 0:
                    break
                if packets.data[slot, 0] >> 4 == 4:
                    free[-1] -= 1
                    packets.length[slot] = size + FRAME
                    arrive(slot, now, links[2 * host], flows[2 * host], packets)
        for side in range(2):  # hosts' own links first: what leaves them arrives at others'
            for host in range(len(devices)):
                while True:
                    slot, later = leave(now, links[2 * host + side], flows[2 * host + side], packets)
                    if slot < 0:
                        wait = min(wait, later)
                        break
                    place = places[packets.data[slot, 19]]
                    if side == 0 and place >= 0:
                        arrive(slot, now, links[2 * place + 1], flows[2 * place + 1], packets)
                        continue
                    if side:
                        _write(devices[host], base + slot * SLOT, packets.length[slot] - FRAME)
                    release(slot, free)
        patience[1] = int(1e9 * wait)
        _ppoll(polled.ctypes.data, len(devices), patience.ctypes.data, 0)
