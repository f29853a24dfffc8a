"""The state machine of one Raft group, pure: commands in, state and results out
(docs/design/storage.md#state).

Every replica has the same state. Only a leader has dispatchers, which choose what to hand out and
write down no more than the log must know.

- `machine`: applies entries in log order, the same way on every node
- `observer`: what a state machine tells its node
- `log_commands`: the commands, as they stand in the log
- `group_state`: what one Raft group knows
- `index`: where a queue's messages lie in the log
- `applying`: how each kind of command changes the state
- `tracing`: what the leader notes of the messages of traced topics
- `delivery`: the leader's choice of who gets what next
- `snapshots`: the state as records, and back
"""
