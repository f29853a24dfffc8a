"""Where the replicas of groups are to be, and who is to lead them (ADR 30). Pure: figures in, the
next moves out; nothing here remembers anything, so that a manager that dies is followed by one that
decides the same.

- `view`: what is known of stores and groups; moves, and what they may take of stores at a time
- `holdings`: who holds what, as it will be once the moves under way are made
- `evening`: which move of a leader or a replica makes the load more even
- `planner`: the rules, in order; `plan` is what a manager asks
"""
