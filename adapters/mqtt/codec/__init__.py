"""The MQTT codec: strict, sans-I/O, one packet model for 3.1, 3.1.1 and 5.

`decoder.Decoder` takes bytes as they arrive and gives packets; runs of PUBLISH and of one kind of
acknowledgement come as columns. `encoder.encode` gives the bytes of any packet; the hot ones have
functions of their own. The only exception that bytes from a peer can cause is `errors.MqttError`.

- `packets`: a class for each packet; `packet_types` and `reason_codes` are their numbers
- `decoder`: bytes to packets; `control` has the packets that are not hot
- `encoder`: packets to bytes
- `properties`: the properties of MQTT 5
- `wire`: integers, strings and lengths
- `topic_names`: the rules of names, checked once a name
- `topic_filter`: the rules of filters, shared subscriptions, matching
- `errors`: what a peer can do wrong, with its reason code
"""
