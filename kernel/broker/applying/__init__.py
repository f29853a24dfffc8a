"""How commands change the state of a Raft group; `machine` calls what is here.

- `definitions`: topics and their groups, routers and routes, metadata records
- `offsets`: single offsets: a recall, a group's new place
- `resizes`: queues that are sealed, and their successors
- `half_messages`: half messages, until they are committed
- `outbox`: dead letters on their way to another group
- `subscribers`: the topic tree: reference lists, subscribers, wills, retained messages
- `clients`: the last results of clients, from which repeats are answered
- `lost_entries`: messages whose log entry does not read are given up
- `liveness`: which slots of a log entry somebody still needs
- `sweep`: the index of a queue behind a message that nobody takes
"""
