"""Live runs as tests ask for them: options of the framework and of the runner together; and what is refused."""

import pytest

from queuemodel import DataError
from queuemodel.adapters import profile_live

RUNNER = {"time_limit", "output", "traces", "progress", "on_step"}


def recorded(backend, *model, **settings):
    own = {name: settings.pop(name) for name in RUNNER & settings.keys()}
    return profile_live(backend(*model, **settings), **own)


def at(number, action):
    """To be called in each step, does something in one."""
    return lambda kind, done, total: action() if done == number else None


def refused(function, *arguments, said, error=DataError, **known):
    """In one line."""
    with pytest.raises(error, match=said):
        function(*arguments, **known)
