"""A public benchmark: fixed tasks, one line per run, and a table that anyone can enter.

`tasks` defines the tasks, and `digest` the digest of their data. `ours` runs the heads
of this package, and `adapter` runs other code. `lines` checks results, and `table`
shows them. `command` is `largevocab-bench`.
"""
