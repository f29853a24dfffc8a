"""What a data directory holds at a start, and what is damaged or lost (ADR 15).

- `recovering`, `replaying`: journal and states, as far as committed
- `damage`: what is damaged, and whether it may be given up; `examination`: `weir doctor`
- `missing`, `places`: entries that messages stand in and that the journal does not have
- `unreadable`: entries that do not read while the store runs
- `losses`: what was given up, kept for operators
"""
