"""The meters, their records, the way to the log and the archive."""
