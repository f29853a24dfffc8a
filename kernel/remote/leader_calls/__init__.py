"""Calls of the port `requests.leader.Leader` between a gateway and the stores.

- `call_numbers`, `call_wire`: numbers and heads of all calls; those of `Leader`, as bytes
- `leaders`: the gateway's connections to every store, and where each group's leader is
- `lanes`, `lane_service`: the calls of one group, in order: the gateway's side, and the store's
- `fair_gateways`: which gateway's calls are next, while several are active
- `transaction_wire`: transactions and half messages, which are calls of a leader too, as bytes
- `answering`: questions that are kinds of bytes
- `claiming`: what a gateway holds is told to each new leader
"""
