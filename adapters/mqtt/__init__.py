"""MQTT 3.1.1 and 5: a codec and a server-side session, both without I/O.

`codec` turns bytes into packets and back. `session` is one client's connection: it takes bytes and
decisions, gives events and bytes, and knows the rules of both protocol versions. `topic_filter`
holds the rules of names and filters. Nothing here reads a clock, a socket or a random number.
"""
