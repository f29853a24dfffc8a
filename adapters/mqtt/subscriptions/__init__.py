"""What a subscription is. How one is made and ended: `adapters.mqtt.requests`.

- `subscription`: one subscription: its options, how it is served, what overlaps with what
- `filter_table`: the filters of one session: which of them a name falls under
- `live`: fan-out of live messages: one watch of the tree per distinct pattern
"""
