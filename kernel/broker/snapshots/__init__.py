"""A group's state as records, and back: metadata only, no message bodies.

- `snapshot`: the whole; `cut`: written down while the state goes on changing
- `snapshot_records`, `queue_records`: the records; a queue of them as an object
- `resized_records`: what is known of a topic that was resized
- `tree_snapshot`, `tree_records`: the part of the topic tree
"""
