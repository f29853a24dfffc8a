"""A store: state machines, Raft and the journal driven by threads, disk and event loop.

Drivers move bytes and decide nothing about messages.

- `node`: the loop that turns proposals into commits
- `transient`: a Raft group in memory, for what is not durable (ADR 5)
- `entry_reader`: brings entries that are only on disk into memory
- `store_statistics`: figures for metrics
- `topic_figures`: those of topics and groups; `replica_loads`: what Raft groups cost the store
- `replicas`: one Raft group on this node: state machine, open entry, dispatchers
- `leading`: what a leader does beside that: transactions, limits, dead letters, matching names
- `raft_groups`: the groups that a node is a member of: messages, time, roles
- `snapshots`: how they are taken, kept, and sent to a store that is behind
- `space`: checkpoints, freeing space, a full disk
- `recovery`: what a data directory holds; damage, losses and what is done about them
- `drivers`: the real disk, clock and threads
"""
