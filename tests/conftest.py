"""Settings that all tests share."""

import os
import signal

from hypothesis import HealthCheck, settings

# A shell's background job ignores Ctrl-C, and so would the processes that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Lines break where those of a usual terminal do, whatever this one is.
os.environ["COLUMNS"] = "80"

# These machines are shared and noisy: no deadline for one example, nor for drawing some; the same ones in every run.
settings.register_profile(
    "queuemodel", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, print_blob=True
)
settings.load_profile("queuemodel")
