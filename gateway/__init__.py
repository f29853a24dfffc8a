"""The composition root: the only package that knows every other one.

It reads the settings, assembles the roles a process plays, and offers the command line. Nothing
imports it. `admin` is the HTTP API, `commands` the command line below `cli`.

- processes: `app` runs one, `process` is what all do; `node` has both roles, `store_node` and
  `gateway_node` one each; `front` is what clients meet, `builders` makes the adapters
- `declared`: what the adapters that the settings name say of themselves (docs/adapter.md)
- settings: `config` and `config_schema` (the shape of protocols.yaml), `config_types`,
  `config_source`, `config_merge`, `config_path`, `config_check`; `cluster_settings`, `tenants`;
  `docs_config` makes docs/reference/config.md of them
- who may: `identity` joins `auth` and the kernel; `rights_watch` carries withdrawn rights to who is
  connected (ADR 24), `will_rights` asks about wills; `exposure` is what other machines could reach
- moves of clients: `heartbeat_reports` tells the manager whom a gateway serves, and moves clients
- `node_metering`: counts for the bill
- for operators: `greeting`, `alarm_log`, `leader_log`, `turned_away`, `tls_failures`
- the machine: `certificates`, `data_lock`, `open_files`, `garbage`
"""

from __future__ import annotations

__version__ = "0.1.0"
