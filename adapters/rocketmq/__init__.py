"""The RocketMQ adapter: apache.rocketmq.v2 over gRPC, with pop consumption as the kernel's leases.

- `codec`: requests by the generated code of the client package, answers as bytes
- `services`: one action for each call, and what they do
- `clients`: who calls, who lives, whose leases are renewed
- `topics`: topics as calls need them, and where their queues are
- `messages`: checks, and RocketMQ's column of the message contract
  (docs/design/model.md#the-message-contract)
- `questions`: producers of transactional messages, asked for the outcome
- `names`, `errors`, `environment`, `settings`: names; status codes; what calls share; every bound
- `transport`, `server`: the drivers: gRPC, telemetry, one port with and without TLS; the adapter
"""
