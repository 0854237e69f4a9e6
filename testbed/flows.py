"""Processes of plain sockets: a server, flows with a timetable, and those who fill the other direction."""

from __future__ import annotations

import fcntl
import json
import socket
import struct
import sys
import termios
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from .network import address

PORT, HEAD, BIN, LOOK = 5000, 16, 0.01, 0.02
BLOCK = bytes(1 << 16)
#: Positions in the kernel's `struct tcp_info` (linux/tcp.h), which begins with eight bytes, then goes on in words.
WINDOW, TRIP, THRESHOLD, AGAIN = 18, 15, 17, 23


def tcp(connection: socket.socket) -> tuple[int, float, int, int, int]:
    """Window (packets), round trip (s), slow-start threshold, packets sent again so far, pacing (B/s)."""
    *words, pacing = struct.unpack("24IQ", connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 112)[8:])
    return words[WINDOW], words[TRIP] / 1e6, min(words[THRESHOLD], 1 << 20), words[AGAIN], pacing


def receive(connection: socket.socket, size: int) -> dict[str, Any]:
    """Take so many bytes; say when they came."""
    begin, into, bins = time.time(), bytearray(1 << 16), [0]
    while size > 0:
        got = connection.recv_into(into, min(size, len(into)))
        if not got:
            raise ConnectionError
        size -= got
        now = int((time.time() - begin) / BIN)
        bins.extend([0] * (now + 1 - len(bins)))
        bins[now] += got
    return {"begin": begin, "bin": BIN, "bytes": bins}


def watched(connection: socket.socket, send: Callable[[], None]) -> list[tuple[float, ...]]:
    """Send, and look at what TCP thinks until all of it has arrived."""
    begin, looks = time.time(), []
    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    while sender.is_alive() or struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))[0]:
        time.sleep(LOOK)
        looks.append((round(time.time() - begin, 3), *tcp(connection)))
    return looks


def say(connection: socket.socket, verb: str, size: int = 0) -> None:
    connection.sendall(f"{verb} {size}".ljust(HEAD).encode())


def serve() -> None:
    """Answer heads of 16 bytes: get, put, stream, sink, and rows, which says what the puts and gets were like."""

    def one(connection: socket.socket) -> None:
        rows: list[Any] = []
        with connection:
            while head := connection.recv(HEAD, socket.MSG_WAITALL):
                verb, size = head.decode().split()
                if verb == "get":
                    rows.append(watched(connection, lambda size=int(size): connection.sendall(bytes(size))))
                elif verb == "put":
                    rows.append(receive(connection, int(size)))
                elif verb == "rows":
                    connection.sendall(json.dumps(rows).encode() + b"\n")
                else:
                    fill(connection, verb == "stream")

    server = socket.create_server(("", PORT))
    print("ready", flush=True)
    while True:
        threading.Thread(target=one, args=(server.accept()[0],), daemon=True).start()


def fill(connection: socket.socket, sends: bool, until: float = float("inf")) -> None:
    """Send or take as fast as it goes, until then or until the other end has had enough."""
    connection.settimeout(5)
    try:
        while time.time() < until:
            if sends:
                connection.sendall(BLOCK)
            elif not connection.recv(1 << 16):
                return
    except OSError:
        return


def fill_at(times: Sequence[tuple[float, float, str]]) -> None:
    for begin, end, way in times:
        time.sleep(max(0.0, begin - time.time()))
        with socket.create_connection((address("ps0"), PORT)) as connection:
            say(connection, "sink" if way == "push" else "stream")
            fill(connection, way == "push", end)


def flow(rounds: Sequence[tuple[float, str, int]]) -> None:
    """Fetch or push at these times, and print what came when."""
    mine = []
    with socket.create_connection((address("ps0"), PORT)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for begin, way, size in rounds:
            time.sleep(max(0.0, begin - time.time()))
            say(connection, "get" if way == "fetch" else "put", size)
            if way == "fetch":
                mine.append(receive(connection, size))
            else:
                mine.append(watched(connection, lambda size=size: connection.sendall(bytes(size))))
        say(connection, "rows")
        theirs = json.loads(connection.makefile().readline())
    rows = []
    for own, other in zip(mine, theirs, strict=True):
        arrivals, looks = (own, other) if isinstance(own, dict) else (other, own)
        rows.append(arrivals | {"tcp": looks})
    print(json.dumps(rows))


if __name__ == "__main__":
    role, *rest = sys.argv[1:]
    if role == "serve":
        serve()
    elif role == "flow":
        flow(json.loads(rest[0]))
    else:
        fill_at(json.loads(rest[0]))
