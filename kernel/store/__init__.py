"""The drivers: threads, disk, event loop. They move bytes and decide nothing about messages."""
