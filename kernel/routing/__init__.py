"""Look-ups in memory: what is defined, and who gets a message. Pure; no I/O.

- `topology`: the cache of definitions: topics, routers and routes
- `routing`: routers compiled for look-up by key
- `tree_table`, `tree_routes`: who wants a name of the topic tree, for one tenant and for all
- `watches`: live routes of the topic tree in this process
- `destinations`: where the messages of one router and key, or of one tree name, go; `Forwarder`:
  one that carries them on by itself
- `lookups`: what a client answers from the cache
"""
