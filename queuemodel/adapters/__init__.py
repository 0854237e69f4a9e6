"""From other tools' recordings to a `Profile`; each tool in a folder of its own, imported only when used.

A tool's reader hands over `TracedStep`s (`events`): operations and transfers, in microseconds of each task's own clock.
`phases.derive` makes the profile's steps of them, with no file format in sight: `one_job` refuses copies and mixtures,
`clocks` brings the tasks onto one clock, `graph` says what waited for what and how long each phase was, and
`contraction` merges the operations that a simulation can move together. To add a tool, write its reader.
"""
