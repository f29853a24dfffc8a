"""Pulls: a receive of a gateway is carried out by the leaders of the queues.

- `pulls`, `pull_service`, `pull_wire`: the gateway's side, the store's side, as bytes
- `lost_leases`: leases whose answer may have died with the last leader
"""
