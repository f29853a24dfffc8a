"""What a client is sent.

- `inbox`: live and retained messages, and what waits until the client takes more
- `session_deliveries`: what the kernel stores for a session: identifiers, settlement, resuming
- `copies`: of one message, which several filters bring: settled together
- `notes`: what a session keeps in its subscriber's notes: exchanges under way
- `system_topics`: the figures below `$SYS`
"""
