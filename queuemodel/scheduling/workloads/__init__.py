"""Job streams in files: readers that give a `Workload` each.

`queuemodel.base.files` reads and checks the table row by row, a function here makes a job of each row (`published`, or
a module named after the format), and `Workload` checks them together.
"""
