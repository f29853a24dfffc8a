"""Who belongs to a cluster, and how stores come and go (docs/design/replication.md#membership)."""
