"""Traffic of real clients through a real node, and what it must be counted as."""
