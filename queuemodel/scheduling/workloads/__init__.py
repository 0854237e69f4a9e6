"""Job streams in files: one module per format, each with one verb that gives a `Workload`.

Every reader goes the same way: `queuemodel.base.files` reads and checks the table row by row, the format's module makes
a job of each row (`assembling`), and `Workload` checks them together. Times count from the first arrival, steps and
curves come from measurements beside the table where the format has them, else from a power law that the caller chooses.
A new format is one more module here, named after it.
"""

from .alibaba import read_alibaba
from .elasticflow import read_elasticflow
from .gavel import read_gavel
from .philly import read_philly
from .pollux import read_pollux
from .workload_csv import read_workload

__all__ = [
    "read_alibaba",
    "read_elasticflow",
    "read_gavel",
    "read_philly",
    "read_pollux",
    "read_workload",
]
