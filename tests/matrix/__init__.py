"""The message contract (docs/design/model.md#the-message-contract) by real clients: written over
one protocol, read over another.

`contract` says what a message is without any protocol; each `*_peer` writes and reads it as an
unmodified client of its protocol; the tests run over all pairs of them. A protocol joins by one
class and one line in `conftest.PEERS`.
"""
