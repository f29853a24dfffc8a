"""What one Raft group knows: the data that commands change and snapshots hold.

- `state`: all of it; `topic_state`: a topic and its queues, its definition kept once a
  process; `alike`: settings that topics have in common
- `resized`: sealed queues and successors of a topic
- `queues`: the queues in use, as objects; `idle_queue`, `idle_record`: idle ones, as short records
  (0.6 KB a queue, all told)
- `progress`: how far a consumer group is in a queue; `pending_acks`: how many have yet to ack
- `length_limits`: queues that take no more than they may hold; `stored`: what all of them hold, by
  tenant
- `deduplication`: deduplication ids of a queue
- `halves`: half messages; `retained`: retained messages; `tree_state`: subscribers
- `usage`, `topic_usage`, `tally`: what was served of each topic, for the bill
"""
