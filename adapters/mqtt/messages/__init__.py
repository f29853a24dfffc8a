"""MQTT's column of the message contract (docs/design/model.md#the-message-contract).

- `stored`: MQTT's part of a stored message, its fields for the kernel, and its reader
- `views`: a stored message, by whatever protocol it was written, as MQTT clients see it
"""
