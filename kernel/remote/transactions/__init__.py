"""Transactions and half messages of gateways, carried out by the leader of one group.

- `halves`, `half_service`, `half_wire`: questions about half messages: the gateway's side, the
  store's side, as bytes
"""
