"""What live runs of any framework share; no framework is imported here.

A `run` starts `processes` of its own, each of which listens first of all to its `parent` and tells it in lines of JSON
how far it is (`progress`). A user's `functions` are named in the parent and imported in the child; `interrupts` notes
Ctrl-C and its like; `scratch` holds what ends with the run, and `addresses` says where processes meet.

Of data-parallel training, `ranks` follows the processes whatever the framework, and `data_parallel` makes the profile.
`hosts` is what a machine says of its network.
"""
