"""Files of the server that nobody else may read.

- `files`: created whole or not at all, and refused if others can read them
- `sealed`: secrets of access keys, sealed by a key of their own
- `tokens`: the admin token
- `tls`: certificates of listeners, and the one for loopback
"""
