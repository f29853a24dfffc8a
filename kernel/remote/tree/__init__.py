"""The topic tree, for gateways: leaders keep its lists and look names up in them (ADR 10).

- `tree`, `tree_service`, `tree_wire`: the gateway's side, the store's side, as bytes
- `consumer`: what a subscriber consumes
- `list_waits`: lists that have nothing for anybody yet
"""
