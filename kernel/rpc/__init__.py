"""What the processes of a cluster say to each other. `link` moves the bytes, the rest is pure."""
