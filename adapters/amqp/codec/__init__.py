"""AMQP 0-9-1 as bytes: values to frames and back, without I/O and without state.

- `spec`: every method of AMQP 0-9-1 and RabbitMQ's additions, as one table
- `method_base`: what a method is: a frozen value whose class says how it travels
- `methods`: bytes of a method to its value and back, compiled from `spec`
- `fields`: tables and arrays, typed as RabbitMQ types them
- `properties`: the property block of a message (content header)
- `frames`: the envelopes, and the frames that need no method codec
"""
