"""The command line, called in this process."""

import pytest

from queuemodel.cli import main


@pytest.fixture
def run(capsys):
    """From arguments to the exit status, and what stands on standard output and standard error."""

    def call(*arguments):
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return stop.value.code, out, err

    return call
