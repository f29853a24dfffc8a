"""What adapters and the gateway see of the kernel: its interface, its model, its messages. No I/O.

- `client`: what may be asked of the kernel; adapters are written against it
- `session`, `publishing`, `consuming`: connections, batches and consumers; to be had from `client`
- `model`: topics, queues, groups, routers, routes and sessions
- `message`: the stored message, and how it is read
- `changes`: changes of definitions, for `Client.administer`
- `tree`: the topic tree: names, patterns, subscribers, retained messages
- `transactions`: half messages, which are delivered if and when the producer says so
- `atomic`: commands that are carried out together or not at all
- `filters`, `sql`: what a consumer takes of a topic; expressions in a dialect of SQL92
- `moves`: tasks that move messages from one topic on to others
- `tracing`: which messages of a topic are traced
- `origins`: which adapter wrote a message, and who reads its native properties
- `refusals`, `statistics`: why messages were refused; figures of a topic
"""
