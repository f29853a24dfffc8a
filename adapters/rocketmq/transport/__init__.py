"""Drivers below `adapters.rocketmq.server`: gRPC, its port, streams, and what waits.

- `grpc_calls`: between gRPC and the actions: the handlers that grpc.aio asks for
- `relay`: one port for TLS and plain text, told apart by the first byte
- `telemetry`: the stream on which client and server tell each other what they want
- `fair_calls`: calls that take turns beside those of other tenants
- `waiting`: sends and polls that wait
"""
