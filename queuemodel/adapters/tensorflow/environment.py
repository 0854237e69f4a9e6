"""What is added to the environment of processes that load TensorFlow."""

from __future__ import annotations

import os


def child_environment(*, gpu: bool) -> dict[str, str]:
    """With or without the machine's accelerators."""
    environment = {
        "TF_CONFIG": "{}",  # the servers are those that the settings name
        "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2"),
        "KERAS_BACKEND": "tensorflow",
    }
    for name in ("no_proxy", "NO_PROXY"):  # gRPC would ask a proxy for the loopback address
        environment[name] = ",".join(filter(None, [os.environ.get(name), "127.0.0.1,localhost"]))
    if not gpu:
        environment["CUDA_VISIBLE_DEVICES"] = "-1"
    return environment
