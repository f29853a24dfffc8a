"""What the leader of a Raft group does in its store, beside dispatching.

- `local_leader`: the leader as clients ask it: `requests.leader.Leader`
- `first_tries`: what comes again is not stored behind what came after it
- `needless`: commands that would change nothing
- `topic_room`: limited topics that refuse what is new
- `stored_room`: how much tenants and topics may store at all (ADR 29)
- `transacting`, `half_keeper`: transactions; half messages, and who is asked about them
- `dead_letters`: sends dead letters to the groups of their targets
- `name_matching`: which lists a message to a tree name gets into (ADR 10)
- `retained_reading`: retained messages, for whoever asks
- `group_use`: when a consumer group was last used
"""
