"""The model and the log: topics, queues, groups, leases, and the journal below them.

Knows no protocol, no HTTP, no authentication scheme and no billing. ARCHITECTURE.md is the map.
"""
