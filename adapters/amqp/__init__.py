"""The AMQP 0-9-1 adapter: RabbitMQ's dialect of it, over the kernel.

Bytes to values, without I/O: `spec` is the table of methods (on `method_base`), `methods` its
codec, `fields` holds tables and arrays, `properties` the property block of a message, `frames` the
envelopes, `reader` cuts socket reads into frames. `errors` is the reply codes and the error table.

A connection, still without I/O: `connection` is the state machine of one connection (its tables in
`lifecycle`, its login in `handshake`, its deadlines in `liveness`), `channel` the state of one
channel and its consumers, `channel_methods` what its methods do. `operations` runs what must await
the kernel; `caller` says on whose behalf, `environment` what all connections share.

- publishing: `publishing` (hot), with `targets` and `stamps` for what it remembers, `assembly` for
  messages in parts, `confirms` for what publishers are told, `returns` for what nobody gets,
  `direct_reply`
- consuming: `consuming` (hot), `shape` of a queue's frames, `translation` of what is no plain
  slice, `patience` for `x-consumer-timeout`, `revoking` when a right is withdrawn
- transactions: `transaction` holds back, `committing` carries out
- names and definitions: `topology` declares and binds, `exchanges` are routers, `arguments` says
  what `x-` arguments mean, `names` how names and keys are spelled, `router_rights` what it takes
- `stored`: AMQP's part of a stored message (docs/design/model.md#the-message-contract)

`server` moves bytes, `figures` counts for operators, `limits` holds every bound.
"""
