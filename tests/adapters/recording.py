"""Live runs as tests ask for them, options of framework and runner together; changed traces; and what is refused."""

import gzip
import json
import shutil

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


def check_rounds(profile, *, ranks, steps, parameter_bytes):
    """Steps of each rank of each number of ranks; several reduce all gradients."""
    each = [(n, rank) for n in ranks for rank in range(n)]
    assert sorted((one.ranks, one.rank) for one in profile.rounds) == sorted(each * steps)
    for one in profile.rounds:
        assert sum(gradient.bytes for gradient in one.gradients) == parameter_bytes
        assert sum(bucket.bytes for bucket in one.buckets) == (parameter_bytes if one.ranks > 1 else 0)
        assert 0 < one.computed <= one.round_time


def decoded(path):
    return json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())


def change(path, edit):
    """What a trace says, as ``edit`` leaves it or returns another."""
    trace = decoded(path)
    text = json.dumps(edit(trace) or trace).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def copied(run, place, edit=None):
    """A run's folder elsewhere, with changed traces."""
    folder = shutil.copytree(run, place / run.name)
    for path in sorted(folder.iterdir()) if edit else ():
        change(path, edit)
    return folder


def refused(function, *arguments, error=DataError, **known):
    """In one line, which the last argument describes."""
    *arguments, said = arguments
    with pytest.raises(error, match=said):
        function(*arguments, **known)
