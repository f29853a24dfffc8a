"""How topics, routers and routes are made, changed and removed.

- `definer`: the rules, wherever a thing lives
- `definition_checks`: what a change must keep to
- `administration`: changes of what is durable, over the Raft groups they touch
- `transient_definitions`: changes of what lives in the memory of one process
- `clearing`: removal of routes to what is gone
- `repairing`: mends changes that were never finished
"""
