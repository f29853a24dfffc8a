"""What stores ask of each other: commands of groups that another one leads, and questions (ADR 11).

- `remote_peer_stores`: the port `requests.peer_stores`, over the network
- `peer_stores_service`, `peer_stores_wire`: who answers; as bytes
- `keys_service`: which keys a sealed queue has unsettled, both ends
- `followed_groups`: what is defined in groups that this store has no replica of
- `stored_elsewhere`: how much such groups hold
- `mixed_link`: to groups that are led here directly, to others over the network
"""
