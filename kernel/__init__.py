"""The model and the log: topics, queues, groups, leases, and the journal below them.

Knows no protocol, no HTTP, no authentication scheme and no billing. ARCHITECTURE.md is the map.

From those that know most down to what all of them use: `cluster`; `remote`; `in_process`;
`definitions`, `leader_tasks`, `subscribers`; `store`, `transactions`; `requests`; `broker`,
`routing`; `api`, `log`, `quotas`, `raft`, `rpc`; `common`.
"""
