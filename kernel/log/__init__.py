"""The journal of a store: the Raft log of all its groups, and the only place message bodies live
(docs/design/storage.md#one-journal).

- `journal`: the front; `options`, `statistics`: its sizes and counters
- `writer`: what is queued becomes one synced write
- `locations`, `groups`: where each entry stands; what is remembered of each group's log
- `install`: what a snapshot from another store refers to
- `errors`: what can go wrong with files
- `hard_read`: what a disk still reads of a file with bad sectors
- `format`: bytes of records, entries, segments and the small files
- `reading`: entries that are not in memory
- `reclaiming`: checkpoints, and space of what nobody needs
- `recovering`: from files to a journal that can be written
"""
