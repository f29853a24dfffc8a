"""One Raft group on this node.

- `replica`: state machine, open entry and dispatchers; `host`: what it asks of its store
- `open_entry`: the entry that is being filled
- `listener`: who hears of what is applied
- `log_clock`: the time that a leader stamps on entries
- `noted_leases`: for whom leases in the log are
- `idle_dispatchers`, `idle_lists`: what nobody consumes from, and who waits for it
- `gates`: successors of sealed queues, which wait for these
- `unsettled_keys`: the keys that a sealed queue has unsettled
- `key_lists`: the same, told to successors in other Raft groups
- `retention`: retention; `sweeper`: keeps indexes short
"""
