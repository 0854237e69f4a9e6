"""Processes of live runs, which cannot outlive their parent; what a rank does in its own; the machine's network."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pkgutil
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..base.checks import nearest
from ..base.errors import DataError, ProfilingError, QueueModelError
from ..transport.sharing import CONGESTION_CONTROLS

SCRATCH = "QUEUEMODEL_SCRATCH"  # environment variable: folder of the run, removed at its end
REMOVING = 5.0  # seconds for that at most, by a process whose parent is gone

#: An error's own message, within that of Keras about a layer or of TensorFlow about a graph.
WRAPPED = (
    re.compile(r"^Exception encountered when calling .*?\x1b\[1m(.+?)\x1b\[0m", re.DOTALL),
    re.compile(r"^Graph execution error:.*\n(.+)\n\s*\[\[\{\{node", re.DOTALL),
)

NOISE = ("I0000", "W0000", "WARNING: All log", "To enable the following", "[W")  # of TensorFlow and PyTorch

ADDRESS = re.compile(r"(?P<host>[^ /,]*[^ /,:]):(?P<port>[0-9]+)")
CONGESTION_CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")

Call = Callable[..., Any]
Say = Callable[..., None]  # sends a message to the parent


def run_child() -> None:
    """Run the function and settings (JSON) of the arguments, in a child process."""
    say, status = _attach(), 0
    try:
        module, _, function = sys.argv[1].partition(":")
        settings = json.loads(sys.argv[2])
        sys.path.extend(entry for entry in settings["path"] if entry not in sys.path)  # what the parent can import
        if ":" in settings["model"]:  # before a framework takes its seconds
            imported(settings["model"])
        # the result lives until the end: TensorFlow's destructors may wait for ever for a server
        kept = getattr(importlib.import_module(module), function)(settings, say)  # noqa: F841
    except BaseException as error:  # SystemExit in a user's module too
        traceback.print_exc()
        say(failed=str(error) if isinstance(error, QueueModelError) else cause(error))
        status = 1
    sys.stderr.flush()
    os._exit(status)


def _attach() -> Say:
    """Return a function that sends the parent a line of JSON on the original standard output; prints go to stderr.

    When standard input closes, the parent is gone: its temporary files are removed, and this process and all that it
    started are killed.
    """

    def listen() -> None:
        sys.stdin.read()
        folder, until = os.environ.get(SCRATCH, ""), time.monotonic() + REMOVING
        while os.path.exists(folder) and time.monotonic() < until:  # the process may still write to it
            shutil.rmtree(folder, ignore_errors=True)
        os.killpg(0, signal.SIGKILL)

    channel, lock = os.fdopen(os.dup(1), "w"), threading.Lock()
    os.dup2(2, 1)
    threading.Thread(target=listen, daemon=True).start()

    def say(**message: Any) -> None:
        with lock:
            print(json.dumps(message), file=channel, flush=True)

    return say


def cause(error: BaseException) -> str:
    """An error's type and own message, and its place in the user's files."""
    message = next((found[1] for wrap in WRAPPED if (found := wrap.search(str(error)))), str(error))
    first = next((line.strip() for line in message.splitlines() if line.strip()), "")
    text = f"{type(error).__name__}: {first}"[:400] if first else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    package = str(Path(__file__).parents[1])
    own = [f for f in frames if not f.filename.startswith((package, sys.prefix, sys.base_prefix, "<"))]
    return f"{text} ({os.path.basename(own[-1].filename)}, line {own[-1].lineno})" if own else text


@contextlib.contextmanager
def blaming(name: str) -> Iterator[None]:
    """Raise what fails in a user's function as a `ProfilingError` of the model."""
    try:
        yield
    except ProfilingError:
        raise
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        grouped = "; leave the module as it is: step is given it inside DistributedDataParallel"
        hint = grouped if "process group" in str(error) else ""
        raise ProfilingError(f"model {name!r}: {cause(error)}{hint}") from None


def function_name(model: str | Callable[[], Any], built_in: Collection[str] = ()) -> str:
    """The name by which a child process finds ``model`` (raises `DataError`)."""
    if callable(model):
        module, function = getattr(model, "__module__", None), getattr(model, "__qualname__", "<locals>")
        if module in (None, "__main__") or not function.isidentifier():
            raise DataError(
                f"model: a child process must be able to import the function, got {module}:{function}; "
                "put it at the top level of a module of its own"
            )
        return f"{module}:{function}"
    if not isinstance(model, str) or not (
        model in built_in or re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*", model)
    ):
        others = f" or one of {', '.join(built_in)}" if built_in else ""
        raise DataError(f"model: must be 'package.module:function'{others}, got {model!r}{nearest(model, built_in)}")
    return model


def imported(name: str) -> Callable[[], Any]:
    """The function of that name (raises `ProfilingError`)."""
    with blaming(name):
        return pkgutil.resolve_name(name)


def built(name: str, expected: str, types: tuple[Any, Any], *, module: str = "") -> Any:
    """The pair of these types that a function returns, by default one of ``module`` (raises `ProfilingError`)."""
    with blaming(name):
        made = imported(name if ":" in name else f"{module}:{name}")()
    pair = isinstance(made, (tuple, list)) and len(made) == 2 and all(map(isinstance, made, types))
    if not (pair and getattr(made[0], "compiled", True)):  # as Keras' models say
        got = " ".join(repr(made).split())[:200]
        raise ProfilingError(f"model {name!r}: its function must return {expected}, got {got}")
    return made


def record_rank(
    settings: dict[str, Any], say: Say, step: Call, recording: Call, gradient_norms: Call, finish: Call = bool
) -> None:
    """As one rank of a live run warm up, record, time untraced steps, and measure gradients.

    The framework trains a ``step``, whose number it is given; is ``recording`` into a folder meanwhile, which yields
    what is called after each step; measures ``gradient_norms`` of so many; and waits for computations to ``finish``.
    """
    ranks = len(settings["addresses"])

    def train(kind: str, count: int, then: Call = bool) -> float:
        """Seconds of all."""
        finish()
        start = time.perf_counter()
        for number in range(count):
            step(number)
            say(step=kind)
            then()
        finish()
        return time.perf_counter() - start

    train("warmup", settings["warmup"])
    with recording(Path(settings["traces"], f"trace_n{ranks}")) as recorded:
        train("traced", settings["steps"], recorded)
    if untraced := settings["untraced_steps"]:
        say(seconds=train("untraced", untraced) / untraced, ranks=ranks)
    if noise_steps := settings["noise_steps"]:
        say(gradient_norms=gradient_norms(noise_steps))
    say(done=True)
    signal.pause()  # an end now cuts off what other ranks have still to receive; the parent ends all


class Child:
    """A process that runs ``"module:function"`` with settings (JSON); its messages go to ``inbox``, at last None."""

    def __init__(
        self,
        name: str,
        command: tuple[str, str],
        scratch: Path,
        inbox: queue.SimpleQueue,
        environment: Mapping[str, str],
    ) -> None:
        self.name, self.log = name, scratch / f"{name.replace(' ', '-')}.log"
        own = {"PYTHONUNBUFFERED": "1", "TMPDIR": str(scratch), SCRATCH: str(scratch)}
        with self.log.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-c", f"from {__name__} import run_child as r; r()", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **own, **environment},
                start_new_session=True,  # Ctrl-C is for the parent, which then ends the children
            )
        self.stdin: Any = self.process.stdin
        self.listener = threading.Thread(target=self._hear, args=(self.process.stdout, inbox), daemon=True)
        self.listener.start()

    def _hear(self, stdout: Any, inbox: queue.SimpleQueue) -> None:
        with stdout:
            for line in stdout:
                with contextlib.suppress(json.JSONDecodeError):  # the last line of a killed process
                    inbox.put((self, json.loads(line)))
        self.process.wait()
        inbox.put((self, None))

    def kill(self) -> None:
        """Kill it and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.listener.join(1.0)
        with contextlib.suppress(OSError):
            self.stdin.close()

    def ending(self) -> str:
        """The signal or exit status, and its last line."""
        code = self.process.wait()
        if code == -signal.SIGKILL:
            return f"the {self.name} was killed by SIGKILL (was memory short?)"
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit status {code}"
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines()]
        own = [line for line in lines if line and not line.startswith(NOISE)]
        return f"the {self.name} {how}" + (f"; its last line: {own[-1][:300]}" if own else "")


@contextlib.contextmanager
def signals_noted(note: Callable[[int], None]) -> Iterator[None]:
    """Note Ctrl-C, SIGTERM and SIGHUP instead of ending: the recording must be saved first."""
    previous: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():  # elsewhere no signal arrives
        for caught in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(caught) not in (signal.SIG_IGN, None):  # nohup stays nohup
                previous[caught] = signal.signal(caught, lambda number, _: note(number))
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def split_address(address: str, *, where: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``, the value of option ``where`` (raises `DataError`)."""
    match = ADDRESS.fullmatch(address.strip()) if isinstance(address, str) else None
    if not match:
        raise DataError(f"{where}: must be HOST:PORT, such as 10.0.0.5:2222, got {address!r}")
    if not 1 <= int(match["port"]) <= 65535:
        raise DataError(f"{where}: the port must be 1 to 65535, got {match['port']}")
    return match["host"], int(match["port"])


def is_here(host: str) -> bool:
    """Whether ``HOST`` or ``HOST:PORT`` is this machine: it can listen only at its own addresses."""
    name = match["host"].strip("[]") if (match := ADDRESS.fullmatch(host)) else host
    with contextlib.suppress(OSError):
        socket.create_server((name, 0), family=socket.AF_INET6 if ":" in name else socket.AF_INET).close()
        return True
    return host == socket.gethostname()


def require_answer(job: str, address: str, *, seconds: float) -> None:
    """Wait for a server (raises `ProfilingError`)."""
    host, port = split_address(address, where=job)
    deadline = time.monotonic() + seconds
    while True:
        try:
            return socket.create_connection((host.strip("[]"), port), timeout=seconds).close()
        except OSError as error:
            if time.monotonic() > deadline - 0.5:
                said = f"no answer within {seconds:g} s ({error.strerror or error})"
                raise ProfilingError(f"{job} {address}: {said}; start it with 'queuemodel serve --job {job}'") from None
        time.sleep(0.25)


@contextlib.contextmanager
def own_addresses(count: int) -> Iterator[list[str]]:
    """Loopback addresses at which only a process that sets SO_REUSEADDR can listen meanwhile."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            each.bind(("127.0.0.1", 0))
        yield [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]


def recorded_network(path: Path = CONGESTION_CONTROL) -> dict[str, Any]:
    """Fields of `Cluster`, without unknown ones and algorithms that no rule covers."""
    with contextlib.suppress(OSError, UnicodeError):
        if (control := path.read_text().strip()) in CONGESTION_CONTROLS:
            return {"congestion_control": control, "origins": {"congestion_control": "recorded"}}
    return {}
