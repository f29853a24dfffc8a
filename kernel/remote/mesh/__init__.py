"""What lives in the memory of one gateway, and how it is used from every other process (ADR 12).

- `mesh`: all of it, put together; `meeting`: gateways find each other, and connect
- `announcing`: tells others what lives here
- `remote_memory`, `remote_process`, `remote_memory_leader`: what lives elsewhere, as known here
- `pseudo_groups`: numbers and ids by which what lives elsewhere is known here
- `link`, `inbox`: messages on their way there, and coming in
- `claimed_names`: names that this gateway has taken
- `name_registry`: whose a name is, said by its home
- `local_definitions`: transient topics, routers and routes of this gateway
- `questions`: what is asked of all other gateways at once
- `mesh_service`, `mesh_wire`: the store's side; what is said, as bytes

What lives elsewhere is consumed by push streams, as from stores (`streams`).
"""
