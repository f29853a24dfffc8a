"""The resources of the API, by subject: each module has the routes of one, and their JSON.

- `topics`, `topic_shapes`: topics and their groups; what is said of them
- `topic_listing`: which topics a page of them has
- `topic_size_changes`: the size of a topic, set and lifted
- `declared_shapes`: what adapters declare of topics and groups made by hand
- `routers`: routers with their routes
- `messages`: reading and publishing by hand
- `tracing`: one message, looked for by its id
- `topic_traces`, `topic_trace_changes`: topics that are traced, and what has become of a message of
  one; how that is set
- `consuming`: what groups consume, taken by hand, and where they go on
- `moves`: messages moved from topic to topic, dead letters among them
- `connections`: connections of all gateways, listed and closed; `local_connections`: of this one,
  for others that ask, too; `connection_order`: their order, and how pages are merged
- `sessions`: sessions of clients, ended
- `users`, `principals`: users, access keys and policies; how they are made and changed
- `definitions`: all that is defined, as one document
- `access`: whether somebody may do something
- `tenants`: which tenant is meant, and which there are
- `tenant_changes`: one tenant: made, shown, changed, removed
- `limits`: what may be used, and what is
- `history`: an hour of figures
- `events`, `audit`: what happens; who has changed what
- `metering`: the archive of what was served
- `node`, `settings`: the process that is asked, and how it is set up
- `backups`: files of a moment, pinned for a backup
- `cluster`: stores and gateways
"""
