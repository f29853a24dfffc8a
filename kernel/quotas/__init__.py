"""Limits of what tenants, users, topics and listeners may use (ADR 27).

- `limits`: what is limited, whom a limit is of, and what an operator has said
- `bucket`: one limit at work: what may be used now, what is owed
- `account`: the limits of one connection, or of one topic
- `accounts`: all limits of a process
"""
