"""What every room of the kernel uses, and what depends on none of them.

- `ids`: identifiers as distinct types, such as GroupId and QueueId
- `errors`: the one tree of errors that the kernel raises
- `limits`: every bound that is not a setting, with its reason
- `ports`: clock, randomness and disk, as the kernel asks for them
- `feature_levels`: what older builds do not understand, and in which order it came
- `names`: things by (tenant, name), in little memory
- `placement`: which Raft group defines a thing
- `ring`: which queue of a resized topic has which keys
- `keyed_lock`: changes of one thing, one after the other
- `listening`: how a listening socket is closed
- `fairness`: whose turn it is among those who share; commits as a process sees them
- `crowd`: strangers at a listener of ours: how many there may be, and who goes first
"""
