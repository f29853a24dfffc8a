"""The way of a client's operations to the leaders of Raft groups, wherever these are.

- `leader`: the port: what a client may ask of the leader of one group (ADR 9)
- `request_pipeline`: tries again when a leader has moved, so that a command is carried out once
  (its enemy: `tests/simulator/hostile.py`)
- `proposer`: commands that somebody awaits
- `publish`, `publish_part`: a batch of messages; its part for one group
- `publisher`: how batches get to the groups that store them
- `cut_over`: batches around queues that are sealed
- `pull`: one receive: consumers that wait for the first delivery
- `lease_changes`: acks, releases and extensions of timed leases, by token
- `client_trace`: who had a part in messages of traced topics, as the connections' process knows
- `session`, `sessions`: owners of leases and transient topics; all that are open in a process
- `half_watches`: which producers are asked what became of a half message
- `peer_stores`: the port to the other stores of a cluster
"""
