"""A node put together: each kind of process from its parts.

- `node`: gateway and store in one process
- `store_node`: one store of a cluster
- `gateway_node`: one gateway of a cluster
- `front`: what clients meet in any of them: sign-in, adapters, the admin side
- `builders`: each protocol's adapter, made from the settings
- `origins`: what each adapter wrote, readable in a process without adapters
- `greeting`: what `weir serve` says when it is up
- `alarm_log`: alarms as log lines, once a change
"""
