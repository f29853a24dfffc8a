"""RabbitMQ's management API over the same topology: for the tools that operators of AMQP have.

A request is a value, and so is its answer: no I/O. What changes something goes the way of AMQP's
own methods (`topology.declaring`), with the same rights; what shows something shows what its caller
may inspect. What is administered goes the way of the server's own API (`administering`).

- `application`: HTTP requests to handlers and back; who asks
- `requests`: what a handler is given, and what it answers
- `routes`: which handler a path has, and what is not served, by name
- `pages`: parts of long lists, names looked for
- `queues`, `exchanges`: queues; exchanges with bindings
- `messages`: one message in, some messages out
- `rates`: how fast queues grow
- `open_connections`: connections, channels, consumers
- `administering`: what /api/v1 is asked for, on behalf of who asks here
- `people`: users, permissions, topic permissions
- `tenancy`: virtual hosts made and removed, limits
- `documents`: all that is defined, written and applied
- `overview`: what there is as a whole; health
"""
