"""What the processes of a cluster say to each other. `link` moves the bytes, the rest is pure.

- `frame`: frames; `handshake`: who it is, proven before anything else is said
- `channel`: calls, answers and messages over one connection, control before bulk
- `roles`: one listener for all kinds of processes
- `link`: the bytes, over TCP; at most so many that have proven nothing (ADR 22)
"""
