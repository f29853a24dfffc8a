"""The kernel client of a process without a store, and what stores do for it (ADR 9): gateways ask,
stores serve. Each package holds both ends of one wire.

- `client`: the client; `connecting`: how a process finds the cluster and becomes one that serves
- `serving`, `sections`: a store's side, put together of sections
- `leader_calls`: the port `kernel.requests.leader.Leader` across processes
- `definitions`: definitions as a gateway knows them, and changes of them
- `streams`, `pulls`: push consumers and receives, at leaders far away
- `transactions`, `tree`: transactions and half messages; the topic tree
- `mesh`: what lives in the memory of one gateway, used from others
- `store_questions`: what gateways ask every store, of what it alone knows
- `peer_stores`: what stores ask of each other
- `served_topics`: which topics the clients of a gateway produce to and consume from
- `filter_wire`, `things`: filters, topics, routers and routes, as they travel
"""
