"""Where the public workloads are, when they are at hand."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def public_data() -> Path:
    """The folder of public workloads (QUEUEMODEL_SCHEDULING_DATA, or ../shared/data/scheduling); skips when absent."""
    root = Path(__file__).resolve().parents[2]
    candidates = [os.environ.get("QUEUEMODEL_SCHEDULING_DATA"), root.parent / "shared" / "data" / "scheduling"]
    for candidate in candidates:
        if candidate and (Path(candidate) / "pollux").is_dir():
            return Path(candidate)
    pytest.skip("the public workloads are not at hand")


@pytest.fixture(scope="session")
def pollux(public_data: Path) -> Path:
    """The Pollux artifact's folder."""
    return public_data / "pollux"
