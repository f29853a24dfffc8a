"""Who belongs to a cluster, and how stores come and go (raft-store.md 3.6, ADR 9)."""
