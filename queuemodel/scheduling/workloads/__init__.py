"""Job streams in files: readers on `queuemodel.base.files` that make a job of each row and give a `Workload`."""
