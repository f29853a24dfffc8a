"""Passwords, and what keeps those who guess them from taking the CPU of others.

- `passwords`: argon2id in threads
- `salted_hashes`: those that RabbitMQ has made
- `digests`: the memory of what was checked
- `guessing`: who guesses waits
- `fair_queue`: a flood of logins does not keep others out
"""
