"""One client's connection without I/O: bytes and decisions in, events and bytes out.

- `client_session`: the whole of it, put together; what the driver calls
- `connection`: CONNECT, AUTH, keep alive, DISCONNECT, and every error
- `handshake`: what a CONNECT asks for, may have, and is told in CONNACK
- `states`: the state machines, as tables
- `inbound`: what a client publishes: aliases, flow control, repeats, acknowledgements in order
- `outbound`: what a client receives: packet identifiers, receive window, QoS 1 and 2 exchanges
- `send_buffer`: what is about to be sent, and what the client allows to be sent
- `subscribing`: which filters of a SUBSCRIBE may stand, which are refused alone
- `events`: what a session tells its driver, besides bytes to send
- `client_ids`: what the kernel calls a client
"""
