"""Topics and consumer groups as calls need them.

- `ready_topics`: found by name, kept in ready form, made by use
- `made_by_hand`: what operators make: types of topics, groups that no client made
- `routes`: where a client finds the queues of a topic, told from where it stands
"""
