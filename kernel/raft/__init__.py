"""Consensus, sans-I/O: propose, make stable, commit, apply. One core for each Raft group.

- `core`: a raw node: no clock, socket, file or thread; `state`: what its handlers work on
- `roles`: role and message to handler: the state machine as a table
- `election`, `follower`, `leader`, `read_only`, `sending`: the handlers
- `reads`: read requests that wait for a quorum
- `messages`, `message_wire`: what nodes say to each other; as bytes
- `log`, `storage`: a group's log as the core sees it; the port behind it
- `members`: membership, and the progress of each member
- `options`, `status`, `errors`: settings, a view for people, refusals
"""
