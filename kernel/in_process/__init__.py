"""The client of a process that has a store. `remote` has that of a process without one.

- `opening`: opens a data directory: recovery, then a store and its client
- `local_client`: the client itself
- `base_client`: what it has in common with that of `remote`
- `elsewhere`: the port to what lives in the memory of other processes
- `consuming`: push consumers of queues that are led here
- `receiving`: pulls from queues that are led here
- `answering_keys`: the keys that a sealed queue has unsettled, for successors elsewhere
"""
