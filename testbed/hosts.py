"""The processes of a cluster: one in each namespace, and what they answer."""

from __future__ import annotations

import json
import selectors
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from . import network
from .recordings import PACKED, unpack
from .workload import TestbedError, Workload, workload_text


class Host:
    """One module as a process in a namespace (``place``, else its own), spoken to in lines of JSON."""

    def __init__(
        self, name: str, module: str, arguments: dict[str, Any], log: Path, priority: int, place: str = ""
    ) -> None:
        namespace = network.PREFIX + (place or name)
        self.name, self.log = name, log
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                ["ip", "netns", "exec", namespace, sys.executable, "-m", module, json.dumps(arguments)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=Path(__file__).parents[len(__package__.split("."))],
                preexec_fn=lambda: network.prepare_child(priority),
            )

    def send(self, message: Any) -> None:
        try:
            print(json.dumps(message), file=self.process.stdin, flush=True)
        except BrokenPipeError:
            raise TestbedError(self.epitaph()) from None

    def epitaph(self) -> str:
        lines = self.log.read_text().strip().splitlines() or ["it said nothing"]
        return f"{self.name}: its process ended early: {lines[-1]}"


def expect(hosts: dict[str, Host], names: set[str], limit: float) -> dict[str, dict[str, Any]]:
    """Wait for one line from each of these hosts."""
    answers: dict[str, dict[str, Any]] = {}
    deadline = time.monotonic() + limit
    with selectors.DefaultSelector() as selector:
        for name in names:
            selector.register(hosts[name].process.stdout, selectors.EVENT_READ, name)
        while len(answers) < len(names):
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                silent = ", ".join(sorted(names - set(answers)))
                raise TestbedError(f"no answer from {silent} for {limit:.0f} s; see the logs beside the results")
            for key, _ in ready:
                line = key.fileobj.readline()
                if not line:
                    hosts[key.data].process.wait(5)
                    raise TestbedError(hosts[key.data].epitaph())
                answers[key.data] = json.loads(line)
                selector.unregister(key.fileobj)
    return answers


def write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")


def begin_series(workload_file: str | Path, out: Path, workload: Workload, *stale: str) -> None:
    """Make the folder of a series, or take what an earlier one (files that match ``stale``) left out of it."""
    out.mkdir(parents=True, exist_ok=True)
    if (earlier := Path(f"{out}{PACKED}")).exists():
        unpack(earlier, out.parent)
    if any(out.iterdir()) and not (out / "workload.json").exists():
        raise TestbedError(f"{out}: neither empty nor an earlier series, which would be replaced; give a new folder")
    for old in (path for pattern in stale for path in out.glob(pattern)):
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    (out / "workload.json").write_text(workload_text(Path(workload_file)))
    write(out / "job.json", workload.job())
