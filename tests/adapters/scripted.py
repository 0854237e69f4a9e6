"""A child process that says and does what its test wrote down; no framework takes its seconds."""

import gzip
import os
import signal
import time
from pathlib import Path

from tests.oracles.recorded import DATA

TRACES = DATA / "alexnet-60" / "trace"


def follow_script(settings, say):
    """Messages are said; a word is done. Whoever ends says so in a file, since processes start when they can."""
    ending = Path(settings["traces"]).parent / "ending"
    for act in settings["acts"]:
        if isinstance(act, dict):
            say(**act)
        elif act == "record":
            path = sorted(TRACES.iterdir())[len(list(Path(settings["traces"]).iterdir()))]
            (Path(settings["traces"]) / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
        elif act == "train on":
            while True:
                say(step="untraced", seconds=0.01)
                time.sleep(0.01)
        elif act == "hang":
            time.sleep(600)
        elif act == "die":
            ending.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        elif act == "end late":
            ending.touch()
            time.sleep(0.1)
        elif act == "await another's end":
            while not ending.exists():
                time.sleep(0.01)
        elif act.startswith("raise "):
            raise ValueError(act.removeprefix("raise "))
        else:
            raise SystemExit(act)
