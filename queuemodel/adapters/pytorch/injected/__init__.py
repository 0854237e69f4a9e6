"""What `queuemodel record` puts before the path of a job's Python."""

from pathlib import Path

from .sitecustomize import RECORD_ENV, TRACE_NAME, profiler, record_steps

INJECTED = Path(__file__).parent

__all__ = ["INJECTED", "RECORD_ENV", "TRACE_NAME", "profiler", "record_steps"]
