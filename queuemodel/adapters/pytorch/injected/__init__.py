"""What `queuemodel record` puts before the path of a job's Python."""

from pathlib import Path

from .sitecustomize import FILE, SETTINGS, profiler, record_steps

INJECTED = Path(__file__).parent

__all__ = ["FILE", "INJECTED", "SETTINGS", "profiler", "record_steps"]
