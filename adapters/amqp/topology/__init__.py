"""Exchanges, queues and bindings, as the kernel's routers, topics and routes.

- `declaring`: declaring, binding and deleting, as changes of the kernel's topology
- `arguments`: what the `x-` arguments mean, and whether a declaration says the same again
- `exchanges`: exchanges as routers, bindings as routes
- `router_rights`: who may send through an exchange, or have something from one
"""
