"""The state machine of one Raft group, pure: commands in, state and results out
(docs/design/storage.md#state).

`commands` is what the log says, `machine` applies it, `runs`, `groups` and `state` hold what
follows from it, `snapshot` writes and reads that. `dispatcher` is the leader's own, volatile half:
it chooses who gets what next, and its choices become commands.
"""
