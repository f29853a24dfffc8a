"""What one Raft group knows: the data that commands change and snapshots hold.

- `state`: all of it; `topic_state`: a topic and its queues; `alike`: settings in common, kept once
- `queues`: the queues in use, as objects; `rest`, `idle_record`: idle ones, in short records
- `progress`: how far a consumer group is in a queue; `pending_acks`: how many groups owe an ack
- `limits`: queues that take no more than they may hold
- `recent`: deduplication ids of a queue
- `halves`: half messages; `retained`: retained messages; `tree_state`: subscribers
- `usage`, `topic_usage`, `tally`: what was served of each topic, for the bill
"""
