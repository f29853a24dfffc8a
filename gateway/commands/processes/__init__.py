"""Commands that are a process of the server, until it is told to stop.

- `serve`: all of it in one process
- `store`, `gateway`: one role of a cluster
"""
