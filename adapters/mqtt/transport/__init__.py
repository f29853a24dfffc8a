"""What connections stand on, below MQTT.

- `websocket`: a server's side of one WebSocket, without I/O
- `wheel`: a timing wheel: many deadlines without a timer each
"""
