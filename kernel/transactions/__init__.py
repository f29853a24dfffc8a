"""Transactions and half messages, at the process that clients are connected to.

What a client may ask is in `api.atomic` and `api.transactions`, what a leader does in `store`.

- `transactor`: transactions: gathered here, decided and carried out by one leader
- `stepwise`: transactions over several Raft groups, one step after the other
- `half_desk`: half messages: prepared, committed, rolled back
"""
