"""Snapshots of groups on disk and on their way.

- `snapshot_file`: the files
- `snapshotter`: takes them in slices, off the write path
- `progress`: how far one that is on its way is
- `copy_pace`: how fast a store takes in what others send
- `transfer`: from one store to another that is too far behind
"""
