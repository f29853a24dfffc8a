"""The shared journal: Raft log of every group and message log in one (DESIGN.md 4)."""
