"""The AMQP 0-9-1 adapter: RabbitMQ's dialect of it, over the kernel. Everything but `server` is
free of I/O.

- `codec`: bytes to methods, properties and frames, by one table of methods
- `connection`: the state machine of one connection, its reader, deadlines, what must await
- `lifecycle`, `handshake`: the tables of both state machines; login and what is agreed on
- `channel`, `channel_methods`: one channel: publishing and consuming (hot), confirms, returns,
  transactions; what its methods do
- `assembly`, `shape`: a message that comes in parts; what messages published alike have in common
- `topology`: exchanges, queues and bindings, declared
- `messages`: AMQP's column of the message contract (docs/design/model.md#the-message-contract)
- `names`, `caller`, `environment`: names and keys; on whose behalf; what connections share
- `errors`, `figures`, `limits`: reply codes; figures for operators; every bound
- `server`: the driver, which moves bytes
"""
