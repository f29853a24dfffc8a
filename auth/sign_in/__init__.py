"""How clients prove who they are, as the bytes of several protocols say it.

- `sasl`: SASL PLAIN
- `sigv4`, `sigv4_form`: AWS Signature Version 4, verified; the texts that it is made over
- `mqv2`: the signature of RocketMQ's clients
"""
