"""AMQP's column of the message contract (docs/design/model.md#the-message-contract).

- `stamps`: what a property block means for the header of a stored message
- `stored`: AMQP's part of a stored message, and what others may read in it
- `translation`: dead letters, redeliveries and other protocols' messages as deliveries
"""
