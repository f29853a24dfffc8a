"""What lives in the memory of one gateway, and how it is used from every other process."""
