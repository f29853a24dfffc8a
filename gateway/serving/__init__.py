"""A node put together: each kind of process from its parts.

- `serving_node`: what all of them do: directory, admin side, alarms, how they stop
- `node`: gateway and store in one process
- `store_node`: one store of a cluster
- `gateway_node`: one gateway of a cluster
- `front`: what clients meet in any of them: sign-in, adapters, the admin side
- `builders`: each protocol's adapter, made from the settings
- `greeting`: what `weir serve` says when it is up
- `alarm_log`: alarms as log lines, once a change
"""
