"""Transactions and half messages of gateways, carried out by the leader of one group.

- `wire`: transactions, as bytes
- `halves`, `half_service`, `half_wire`: questions about half messages: the gateway's side, the
  store's side, as bytes
"""
