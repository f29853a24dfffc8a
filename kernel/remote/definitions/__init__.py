"""Definitions: how a process without a store knows them, and how it has them changed.

- `definitions`, `mirror`: the gateway's mirror of what every group defines
- `feed_service`, `feed_wire`: how stores tell it
- `administering`: changes, asked for by a gateway
- `administration_service`, `administration_wire`: carried out by a store
"""
