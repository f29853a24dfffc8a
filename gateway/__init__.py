"""The composition root: the only package that knows every other one.

It reads the settings, assembles the roles a process plays, and offers the command line. Nothing
imports it.

- `cli`: the command `weir`; `commands/` has them, a file for each group
- `app`: runs a node: event loop, logging, exit codes
- `serving/`: nodes, put together
- `admin/`: the HTTP API for operators
- `definitions/`: all that is defined, written and applied as one document
- `backups/`: backups of a node that runs, verified and restored
- `reporting/`: metering, reports to the cluster, log lines
- `process/`: data directory, start and stop
- `access/`: users, rights, certificates
- `config/`: the settings
- `docs_config`: makes docs/reference/config.md out of protocols.yaml
- `docs_api`: makes docs/reference/api.md out of the admin API's operations
- `docs_commands`: makes the man page and the shell completions out of the commands
"""

from __future__ import annotations

__version__ = "0.1.0"
