"""Settings that all tests share."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from queuemodel.cli import main
from queuemodel.data import copy_examples

# A shell's background job ignores Ctrl-C, and so would the processes that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Lines break where those of a usual terminal do, whatever this one is.
os.environ["COLUMNS"] = "80"

# These machines are shared and noisy: no deadline for one example, nor for drawing some; the same ones in every run.
settings.register_profile(
    "queuemodel", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, print_blob=True
)
settings.load_profile("queuemodel")


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
def examples(tmp_path, monkeypatch):
    """A folder with the packaged examples, in which commands run."""
    copy_examples(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path
