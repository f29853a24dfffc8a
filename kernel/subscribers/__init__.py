"""Subscribers of the topic tree: what they want, what they consume, and what their end leaves
(ADR 8).

What a client may ask is in `api.tree`; the replicated state is in `broker`.

- `subscribing`: the client's half: subscribe, unsubscribe, connect, take over
- `held_subscriber`: a subscriber that a connection of this process has
- `local_tree`, `local_subscriber`: the topic tree, and a subscriber, with the store in this process
- `listing`: what is told of the subscribers of a group
- `subscriber_keeper`: subscribers that nobody is connected to: deadlines and wills
- `list_readers`: whom they want on the lists of the tree, and who is on one for nobody
- `tree_owners`: which process a subscriber is connected to
"""
