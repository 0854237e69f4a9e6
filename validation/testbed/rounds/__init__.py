"""Data-parallel jobs on the testbed's network: every round of all ranks ends in an all-reduce.

`measure` starts a rank's process (`rank`) in each host and tells it how many rounds to train; `torch_job` and
`tensorflow_job` are what it trains. All ranks do the same number of rounds, so that none waits for ever. In a
`learning_job` they learn a `lesson` besides, by one strategy (`ways`) after the other.
"""
