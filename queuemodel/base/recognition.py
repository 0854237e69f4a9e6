"""What a file is that a reader refuses, by its first bytes, the names in its JSON or its columns; and what to do."""

import re
from collections.abc import Collection

HEAD = 2**16  # bytes that are looked at
TIMES = "a table of step times gives a curve, too: queuemodel predict steps.csv"
TRACE = ("traceEvents", "schemaVersion")
FOREIGN = {  # beginnings of what nothing here reads
    rb"\s*\Z": "the file is empty",
    rb"PK\x03\x04|\xd0\xcf\x11\xe0": "a spreadsheet or zip archive; save its table as CSV, or give the file inside",
    rb"SQLite format 3\0": f"an SQLite database, as of Nsight Systems; record with torch.profiler; {TIMES}",
    rb"\x80[\x02-\x05]": "a Python pickle; write it as JSON or CSV",
    rb"\xff\xfe|\xfe\xff": "UTF-16 text; save it in UTF-8",
    rb"(?i)\s*(<!doctype html|<html)": "an HTML page; download the file itself",
    rb"version https://git-lfs": "a pointer of Git LFS; fetch the file by git lfs pull",
    rb"BZh[1-9]|\xfd7zXZ|\x28\xb5\x2f\xfd|\x1f\x8b|(?s:.{257}ustar)": "a packed file or archive; unpack it",
    rb"PAR1|\x89HDF|\x93NUMPY|%PDF-": "a Parquet, HDF5, NumPy or PDF file; save its table as CSV",
}
#: Columns of published logs (time, duration, GPUs of a job), and names in what commands print as JSON.
LOGS = {"philly": "timestamp duration num_gpus", "helios": "submit_time duration gpu_num",
        "elasticflow": "submit_time iteration num_gpu"}  # fmt: skip
PRINTED = {"predict": "method workers steps_per_second", "compare": "strategy bytes_per_step", "plan": "goal choices",
           "fit": "parameter identified", "solve": "solver bottleneck", "schedule": "nodes policies",
           "schedule-study": "runs table", "simulate or next-measurement": "rows"}  # fmt: skip
#: The first byte of JSON, or "" for a table; names in it; what has all of them, and what takes it.
KNOWN_FILES = [
    ("{", "queuemodel-profile", "a profile; queuemodel predict takes it"),
    ("{", "queuemodel-network", "a queueing network; queuemodel solve takes it"),
    *(("{", name, "a Chrome trace; torch.profiler's become a profile by queuemodel import-trace") for name in TRACE),
    ("{", "schema nodes", "an execution trace of PyTorch, which has no times; record with torch.profiler"),
    ("[", "ph", f"a list of events, as Horovod's timeline, and no trace of torch.profiler; record one; {TIMES}"),
    ("[", "jobid attempts", "Philly's JSON log; make a CSV of timestamp, duration (in seconds), num_gpus"),
    *(("{", names, f"printed by queuemodel {by}; give the file that it was made of") for by, names in PRINTED.items()),
    *((begin, "{}", "JSON with nothing in it that is known; is it the right file?") for begin in "{["),
    ("", "workers lower upper", "printed by queuemodel predict; give the file that it was made of"),
    ("", "name arrival_time speeds", "a workload; queuemodel schedule --workload takes it"),
    ("", "workers", "throughputs; queuemodel predict takes them"),
    ("", "nodes gpus batch_size step_time", "step times by placement; queuemodel predict takes them"),
    ("", "batch_size examples", "examples to a target; queuemodel compare --convergence takes them"),
    ("", "name price", "machines and prices; queuemodel plan --instances takes them"),
    *(("", names, f"a log of jobs; queuemodel schedule --workload-format {by} takes it") for by, names in LOGS.items()),
]  # fmt: skip


def mistaken(content: str | bytes, expected: Collection[str]) -> str:
    """What is known, by other names than the ``expected`` ones, and what to do with it; "" otherwise."""
    text = (content[:HEAD] if isinstance(content, str) else content[:HEAD].decode(errors="replace")).lstrip()
    json = text[:1] if text.startswith(("{", "[")) else ""
    names = {*(re.findall(r'"([\w-]+)"', text) if json else re.split(r'[\s",;]+', text.partition("\n")[0]))} or {"{}"}
    fitting = (row for row in KNOWN_FILES if row[0] == json and names.issuperset(row[1].split()))
    return next(("" if {*needed.split()} <= {*expected} else what for _, needed, what in fitting), "")
