"""The shared journal: Raft log of every group and message log in one
(docs/design/storage.md#one-journal).
"""
