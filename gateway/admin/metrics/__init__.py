"""Figures at /metrics, read where the work is done, when they are asked for.

- `process_metrics`: what every process has: adapters, memory, sign-in, build
- `store_metrics`: the journal, Raft groups, the disk
- `gateway_metrics`: a process without a store
- `service_metrics`: what a store serves to gateways
- `cluster_metrics`: a store of a cluster, as a whole
- `turned_metrics`: connections that were turned away
- `topic_metrics`: by topic, queue, group and tenant, as a scrape gets them
- `topic_families`: which metrics these are, and their values
- `topic_selection`: the topics that /metrics shows: those that are named, and the busiest
- `size_metrics`: topics that have a size, and how much of it is used
- `tenant_totals`: counters of tenants, added up
- `totals_elsewhere`: the same of all stores and other gateways, for a gateway
- `history`: an hour of them in memory, for charts
- `series_text`: very many series as text, in slices
"""
