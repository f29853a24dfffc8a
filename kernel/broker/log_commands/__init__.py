"""Commands of the log: what a leader proposes and every replica applies. Bytes and back.

- `commands`: topics, messages, settlements and all else
- `tree_commands`: the topic tree
- `resize_commands`: sealed queues and their successors
- `give_up`: a log entry that does not read
- `reasons`: why a message left its group
"""
