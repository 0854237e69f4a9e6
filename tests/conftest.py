"""Settings that all tests share."""

import hashlib
import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import queuemodel
from queuemodel import copy_examples
from queuemodel.base import built
from queuemodel.cli import main

# As setup.py has it; what is installed without its sources has none to compare.
sources = sorted(path.read_bytes() for path in Path(queuemodel.__file__).parent.rglob("*.p[yx][xi]"))
if sources and hashlib.sha256(b"".join(sources)).hexdigest() != built.sources:
    pytest.exit("a loop has changed since it was built: python setup.py build_ext --inplace", 2)

# A shell's background job ignores Ctrl-C, and so would the processes that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Lines break where those of a usual terminal do, whatever this one is.
os.environ["COLUMNS"] = "80"


def _in_one_line(error, *arguments, **named):
    super(queuemodel.QueueModelError, error).__init__(*arguments, **named)
    assert "\n" not in str(error)


# Every error of the package is one line, in every test.
queuemodel.QueueModelError.__init__ = _in_one_line

# These machines are shared and noisy: no deadline for one example, nor for drawing some; the same ones in every run.
settings.register_profile(
    "queuemodel", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, print_blob=True
)
settings.load_profile("queuemodel")

#: Markers of the tests that only ``--all`` runs; a test marks itself, but for those that use the `browser` fixture.
LONG = ("live", "testbed", "engines", "browser", "slow")


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help=f"run the long tests too: {', '.join(LONG)}")
    parser.addoption("--long", action="store_true", help="run the long tests alone")


def pytest_collection_modifyitems(config, items):
    items.sort(key=lambda item: "[validation/__main__.py]" not in item.nodeid)  # the longest begins first
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
        marker = next(filter(item.get_closest_marker, LONG), None)
        if marker and not (config.getoption("--all") or config.getoption("--long")):
            item.add_marker(pytest.mark.skip(reason=f"{marker} (make test-all)"))
        elif not marker and config.getoption("--long"):
            item.add_marker(pytest.mark.skip(reason="short (make test)"))


def pytest_terminal_summary(terminalreporter):
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.getreports("skipped"))
    if reasons:
        terminalreporter.write_line("skipped: " + ", ".join(f"{n} {reason}" for reason, n in reasons.most_common()))


@pytest.fixture
def run(capsys):
    """From arguments to the exit status, and what stands on standard output and standard error."""

    def call(*arguments):
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return stop.value.code, out, err

    return call


@pytest.fixture
def told(run):
    """From a command that succeeds to what it says in JSON."""

    def ask(words):
        code, out, err = run(*words.split(), "--format", "json")
        assert code == 0, err
        return json.loads(out, parse_constant=pytest.fail)

    return ask


@pytest.fixture
def examples(tmp_path, monkeypatch):
    """A folder with the packaged examples, in which commands run."""
    copy_examples(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path
