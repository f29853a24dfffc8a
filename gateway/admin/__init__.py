"""The admin side of a node over HTTP: health, metrics, and the API that `weir` and people use.

- `server`, `app`, `requests`, `errors`: HTTP, the routes, bodies, errors as answers
- `guard`, `callers`: who may reach it; a table of who may use which route (ADR 17)
- `topics`, `topic_shapes`, `routers`, `messages`, `sessions`, `users`, `principals`, `tenants`,
  `metering`, `cluster`: the API, by subject
- `health`, `metrics`: how the process is; figures, with `store_metrics`, `gateway_metrics`,
  `service_metrics`, `cluster_metrics` and `turned_metrics`
- `address`: where a data directory's server listens
"""
