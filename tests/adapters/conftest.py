"""What live tests share: they leave no process and no temporary file."""

import tempfile
import time
import uuid
from pathlib import Path

import pytest

from queuemodel.adapters import processes

HERE = Path(__file__).parent


def running(mark):
    """Processes whose environment carries ``mark``: pid to command line."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (entry / "environ").read_bytes() and (command := (entry / "cmdline").read_bytes()):
                found[int(entry.name)] = command.replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found


@pytest.fixture
def addresses():
    """Two of this machine, at which nobody listens unless the test does."""
    with processes.own_addresses(2) as own:
        yield own


@pytest.fixture
def family(monkeypatch, tmp_path_factory):
    """A function that lists the children; none may be left in the end, and no temporary file."""
    scratch = tmp_path_factory.mktemp("scratch")
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    mark = f"queuemodel-test-{uuid.uuid4().hex}"
    monkeypatch.setenv("QUEUEMODEL_TEST", mark)
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.syspath_prepend(str(HERE))
    yield lambda: running(mark)
    deadline = time.monotonic() + 60
    while (left := [*running(mark), *scratch.iterdir()]) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left
