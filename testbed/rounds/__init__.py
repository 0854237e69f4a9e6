"""Data-parallel jobs on the testbed's network: every round of all ranks ends in an all-reduce, or gradients scattered.

`measure` starts the ranks' processes (`rank`) in the hosts and tells them how many rounds to train; `torch_job` and
`tensorflow_job` are what they train, and `sharded_job`, on an emulated `accelerator`, where ranks share parameters. All
ranks do the same number of rounds, so that none waits for ever. In a `training_job` they learn a `training_task`
besides, by one of the `strategies` after the other.
"""
