"""The command line, called in this process."""

import pytest

from queuemodel.cli import main
from queuemodel.data import copy_examples


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
