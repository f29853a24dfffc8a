"""The AMQP 0-9-1 adapter: RabbitMQ's dialect of it, over the kernel.

Bytes to values, without I/O: `spec` is the table of methods (on `method_base`), `methods` its
codec, `fields` holds tables and arrays, `properties` the property block of a message, `frames` the
envelopes. `errors` is the reply codes and the error table.

A connection, still without I/O: `connection` is the state machine of one connection (its tables in
`lifecycle`, its login in `handshake`), `channel` the state of one channel and its consumers,
`channel_methods` what its methods do; `publishing` and `consuming` are the hot paths, `confirms`
counts what publishers are told. `topology` declares and binds, with `arguments` for what `x-`
arguments mean and `names` for how AMQP's names and keys are spelled in the kernel; `stored` is
AMQP's part of a stored message and `translation` its column of the message contract
(docs/design/model.md#the-message-contract).

`server` moves bytes. `limits` holds every bound.
"""
