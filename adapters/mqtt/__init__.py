"""The MQTT adapter: MQTT 3.1.1 and 5 over the kernel's topic tree.

From the wire inwards:

- `server`: sockets, the clock and tasks, and the adapter as a whole
- `transport/`: WebSockets and deadlines
- `client_connection`: the driver of one connection: what its session decides meets the kernel
- `session/`: one client's connection without I/O: handshake, flow control, QoS exchanges
- `requests/`: PUBLISH, SUBSCRIBE and UNSUBSCRIBE, carried out
- `subscriptions/`: what a subscription is, and which names it takes
- `delivery/`: what a client is sent
- `messages/`: a stored message as MQTT sees it
- `codec/`: packets, topic names and topic filters as bytes
- `access/`: who may connect, and do what
- `reporting/`: what operators and the bill are told

What all of them use:

- `environment`: what all connections share, and what they ask of the driver
- `config`: what the server offers to all clients
- `limits`: every bound, with its reason
"""
