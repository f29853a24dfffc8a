"""One connection without I/O: bytes in, bytes and calls of the kernel out.

- `state_machine`: the life of a connection, by the tables of `adapters.amqp.lifecycle`
- `frame_reader`: socket reads to frames: the protocol header, then whole frames in order
- `operations`: methods that wait for the kernel, one at a time and in order
- `liveness`: deadlines and heartbeats, as values
"""
