"""A public benchmark: fixed tasks, one line a run, a table that others can enter.

`tasks` has the tasks, `digest` the digest of their data; `ours` runs the heads of this
package, `adapter` other code; `lines` checks results, `table` shows them; `command` is
`largevocab-bench`.
"""
