"""Settings that all tests share."""

from hypothesis import settings

# These machines are shared and noisy: no deadline for one example; the same examples in every run.
settings.register_profile("queuemodel", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("queuemodel")
