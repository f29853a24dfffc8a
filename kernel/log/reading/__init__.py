"""Entries that are read back.

- `read`: from segments, in a thread
- `bodies`, `tail_cache`: what is in memory, within a limit
- `kept_check`: whether what an install of an earlier run has left is whole
- `aside`: the bytes of an entry that does not read, kept in `lost/`
"""
