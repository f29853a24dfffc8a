"""The leader's choice of who gets what next, for one (queue, group). In memory only (ADR 23).

- `dispatcher`: the choice itself; `dispatch_port`: what it asks of its node
- `consumers`: consumers as it knows them, and what it hands them
- `delivery_scheduler`: how much is handed out at once, and who comes next
- `ready`: what is ready, in the order in which it is handed out
- `sole_consumer`: fresh messages straight to a group's only consumer
- `ordering_keys`: the rule of ordered groups: one key's messages to one holder at a time
- `in_order`: takes the messages of an ordered group by that rule
- `fairness`: fair pulls: no key's backlog keeps the others waiting
- `filtering`: filters of groups and consumers
- `delays`, `due_times`: what is delayed, leased or expires
- `marks`: how far messages may have been seen, written down ahead
- `group_counts`: what a group was handed, for metrics
- `standing`: what has become of one message, for people
- `claims`: what consumers of the last leader still hold
"""
