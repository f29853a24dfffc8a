"""MQTT 3.1.1 and 5: a codec and a server-side session, both without I/O.

Without I/O: `codec` turns bytes into packets and back.

- one connection: `connection` (CONNECT to DISCONNECT, keep alive, errors), on it `session`
  (publishes, deliveries, requests); `states` are their tables, `events` what they tell the driver
- CONNECT: `handshake` says what is agreed on; `sign_in` who it is, `plugins` by amqtt's plugins
- what clients send: `inbound`; what they are sent: `outbound`, `outbox`
- filters: `topic_filter` and `filter_table`, `subscribing` for what may stand
- `websocket` frames the same bytes, `wheel` keeps many deadlines

With the kernel: `client_connection` joins a session and the kernel.

- `publishing`: publishes into the kernel
- `requests`, `subscriptions`, `subscription`: SUBSCRIBE and UNSUBSCRIBE, a part at a time
- `stored_deliveries`, `inbox`, `live`: what is stored for a session; live and retained messages
- `notes`: what a session keeps in its subscriber's record; `client_ids`: what the kernel calls it
- `stored`, `views`: MQTT's column of the message contract
  (docs/design/model.md#the-message-contract)
- `rights`, `refusals`, `closings`: what a client needs; how it is told no; why connections end
- `system_topics`: `$SYS`; `traffic`: for the bill

`server` is the driver, `host` the port to it, `environment` what connections share, `counters` what
the adapter counts, `config` what a server offers, `limits` every bound.
"""
