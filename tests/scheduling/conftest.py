"""The public workloads and measurements, unpacked once (tests/data/README.md says where they come from)."""

import shutil
from pathlib import Path

import pytest

ARCHIVE = Path(__file__).parents[1] / "data" / "workloads.zip"


@pytest.fixture(scope="session")
def public_data(tmp_path_factory) -> Path:
    """The folder of public workloads: ``pollux``, ``gavel`` and ``elasticflow``."""
    folder = tmp_path_factory.mktemp("workloads")
    shutil.unpack_archive(ARCHIVE, folder)
    return folder
