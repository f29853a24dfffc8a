"""What a node tells of itself without being asked. Who asks, asks `gateway.admin`.

- `node_metering`: the meters of its adapters, for the bill
- `month_bill`: what a month has come to so far, by the billing jobs
- `heartbeat_reports`: whom a gateway serves, told to the manager each second; which of its clients
  are to go elsewhere is the answer
- `limit_reports`: what is used of limits there, and what a gateway may use (ADR 27)
- `events`: what happens, for who follows it
- `audit`: who has changed what, kept in the log
- `trace_stream`: what has become of messages of traced topics, kept in the log
- `system_stream`: a hidden stream of the system's own tenant, for these two
- `leader_log`: a store's log lines about who leads the groups
- `resize_log`: a process's log lines about topics that get other queues
"""
