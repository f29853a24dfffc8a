"""The journal of a store: the Raft log of all its groups, and the only place message bodies live
(DESIGN.md 4).

- `journal`: the front; `options`, `statistics`: its sizes and counters
- `writer`: what is queued becomes one synced write
- `locations`, `groups`: where each entry stands; what is remembered of each group's log
- `install`: what a snapshot from another store refers to
- `errors`: what can go wrong with files
- `format`: bytes of records, entries, segments and the small files
- `reading`: entries that are not in memory
- `reclaiming`: checkpoints, and space of what nobody needs
- `recovering`: from files to a journal that can be written
"""
