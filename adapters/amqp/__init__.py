"""The AMQP 0-9-1 adapter: RabbitMQ's dialect of it, over the kernel.

From the wire inwards:

- `server`: sockets, the clock and tasks, and the adapter as a whole
- `connection/`: one connection without I/O; its tables are in `lifecycle`
- `channel/`: one channel: publishing, consuming, confirms, transactions
- `topology/`: exchanges, queues and bindings
- `importing/`: RabbitMQ's definitions.json as definitions of ours
- `management/`: RabbitMQ's management API
- `messages/`: a stored message as AMQP sees it
- `codec/`: methods, tables, properties and frames as bytes

What all of them use:

- `lifecycle`: which method is legal in which state of a connection or channel
- `handshake`: server properties, login, tuning
- `environment`: what all connections share, and what they ask of the driver
- `caller`: on whose behalf a connection asks, and whether it may
- `names`: how AMQP spells names and keys, and how the kernel does
- `errors`: reply codes, and the exception that carries one
- `limits`: every bound, with its reason
- `figures`: figures of connections, for operators
- `adapter`: what the rest of Weir knows of it, declared; `origin`: its number on disk
"""
