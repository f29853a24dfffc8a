"""Transactions and half messages, at the process that clients are connected to.

What a client may ask is in `api.atomic` and `api.transactions`, what a leader does in
`store.leading` (ADR 13).

- `transactor`: transactions: gathered here, decided and carried out by one leader
- `cross_group`: transactions over several Raft groups, one step after the other
- `half_message_client`: half messages: prepared, committed, rolled back
"""
