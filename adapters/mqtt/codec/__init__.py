"""The MQTT codec: strict, sans-I/O, one packet model for 3.1, 3.1.1 and 5.

`decoder.Decoder` takes bytes as they arrive and gives packets; runs of PUBLISH and of one kind of
acknowledgement come as columns. `encoder.encode` gives the bytes of any packet; the hot ones have
functions of their own. The only exception that bytes from a peer can cause is `errors.MqttError`.

- `decoder`, `control`: the hot packets; all others
- `encoder`: packets as bytes
- `packets`, `packet_types`, `properties`, `reason_codes`: the packets and their tables
- `topic_names`, `topic_filter`: names, validated once; filters; `data_types`: the data types
- `errors`: the peer's fault, and ours
"""
