"""The members of a Raft group as one node sees them.

- `tracker`: all of them, and the votes of a term
- `configuration`: changes of membership
- `progress`, `inflights`: what a leader knows of one; appends not yet answered
- `quorum`: what a majority has agreed on
"""
