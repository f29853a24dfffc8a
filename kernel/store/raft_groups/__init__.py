"""The Raft groups that a store is a member of.

- `consensus`: their messages, time, roles, and what they want; `member`: one of them
- `group_log`: a part of the journal, as the log of one group
- `peers`, `peer_links`: the other stores: a port, and connections
- `quiescence`: groups in which nothing happens cost nothing
- `ticker`, `wall_clocks`: Raft's time; the wall clock of a majority
- `healing`: groups that lost synced data come back from those who have it
- `leaving`: the word that a store is no member of a group any more
- `holding`: nothing is applied for a moment, so that cuts of several stores belong together
- `awaited`: waits until an index is applied
- `vanished`: what a snapshot of another store does away with
"""
