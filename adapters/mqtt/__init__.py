"""The MQTT adapter, 3.1.1 and 5: a codec and a session without I/O, and the kernel behind.

- `codec`: bytes to packets and back
- `session`: one connection without I/O: CONNECT to DISCONNECT, what clients send and are sent
- `client_connection`: joins a session and the kernel
- `access`: who may connect, what it may do, how it is told no
- `requests`: publishes, SUBSCRIBE and UNSUBSCRIBE, on their way into the kernel
- `subscriptions`: filters, and live messages for them
- `delivery`: what is stored for a session; live and retained messages; `$SYS`
- `messages`: MQTT's column of the message contract (docs/design/model.md#the-message-contract)
- `reporting`: why connections end; traffic, for the bill
- `transport`: WebSocket frames; many deadlines
- `environment`, `config`, `counters`, `limits`: what connections share; what is offered; what is
  counted; every bound
- `server`, `host`: the driver, and the port to it
"""
