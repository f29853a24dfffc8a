"""Files of the server that nobody else may read.

- `files`: created whole or not at all, and refused if others can read them
- `sealed`: secrets of access keys, sealed by a key of their own
- `tokens`: the admin token
- `tls`: TLS contexts of listeners and of processes that dial
- `certificates`: certificates as bytes, and the one for loopback
"""
