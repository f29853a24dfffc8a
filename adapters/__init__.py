"""The protocol adapters: one package per protocol, and none of them knows another.

`amqp`, `mqtt`, `rocketmq`, `sqs`.

What they have in common stands here.

- `base`: what every adapter is to the gateway (`Adapter`), what it is given (`Services`), and
  what the rest of Weir knows of it (`Declaration`; docs/adapter.md)
- `transport`, `tls_server`: a connection's bytes, its listeners; TLS handshakes
- `small_reads`: little is read at once of whoever has not signed in, or shares
- `fair_scheduler`: who may be read in this turn, while several tenants are active (ADR 28)
- `lingering`: the end of a connection, so that what was said last arrives
- `memory`, `chunks`, `read_scheduler`: what clients make a gateway hold, bounded by two
  budgets (ADR 22); bytes of what is not whole; who sends much is read in turns
- `waiting_calls`: sends that share a batch, receives that wait: of calls with answers of their own
- `listener_figures`: of a listener: connections, and how long it takes until ok
- `connections`: connections as operators see them, and close them
- `moving`: which connections go when clients are asked to use another gateway (ADR 16)
- `limiting`: limits of what clients use: who is charged, and who waits (ADR 27)
- `pauses`: connections that are not read from meanwhile, and whose clients may leave
- `http_limits`: the same, of what is published and got by HTTP
- `refused`, `line_budget`: refusals, counted and logged; so many log lines a minute
- `definitions`: all that is defined in a server, as one document
- `tree_rights`: what it takes to publish to the topic tree, or consume from it
"""
