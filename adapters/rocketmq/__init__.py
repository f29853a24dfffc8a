"""The RocketMQ adapter: apache.rocketmq.v2 over gRPC, with pop consumption as the kernel's leases.

Bytes and values, without I/O: `stubs` reads requests by the generated code of the client package
and gives them types, `plain_sends` the plain ones without it, `wire` writes answers; `names`,
`checks`, `filters` and `topic_types` say what is allowed, `errors` how a refusal is told; `stored`
and `delivered` are RocketMQ's column of the message contract
(docs/design/model.md#the-message-contract), `receipt_handle` the text of a lease token; `routes`
and `client_settings` answer a client that asks where and how.

The calls: `service` has one action for each, `sending`, `receiving` and `settling` do those that
move messages, `transactions`, `recalling` and `offsets` those around half messages, delayed ones
and streams; `callers` says who calls, `topics` finds topics and makes groups, `clients` knows who
lives and renews their leases, `questions` asks producers about half messages, `calls` counts for
the bill. What all share is in `environment`.

`waiting`, `telemetry`, `relay` (one port with and without TLS), `grpc_calls` and `server` are the
drivers. `settings` holds every bound.
"""
