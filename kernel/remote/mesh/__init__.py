"""What lives in the memory of one gateway, and how it is used from every other process (ADR 12).

- `mesh`: a gateway's part, put together; `service`: a store's; `meeting`: gateways find each other
- `announcing` tells what lives here; `remote_memory` hears what others tell, of each of them
  (`remote_process`)
- `pseudo_groups`: numbers and ids by which a process knows what lives in others
- `remote_memory_leader`, `link`, `inbox`: messages on their way there; `wire`: what is said
- `local_definitions`: what lives here, from its making to its end
- `names`, `name_registry`: whose a name is, as a gateway asks and a store answers
- `served_consumers`, `remote_consumers`, `remote_consumer_wire`: consumers elsewhere of what lives
  here
"""
