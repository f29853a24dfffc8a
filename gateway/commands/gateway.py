"""`weir gateway`: serve clients before a cluster's stores until it is told to stop."""

from __future__ import annotations

import typer

from gateway.commands.options import Assignments, ConfigFile, DataDirectory, load_settings
from gateway.commands.serve import check_packages

AS_GATEWAY = "node.role=gateway"
"""What the command says, the settings need not say too."""


def gateway(
    config: ConfigFile = None,
    data: DataDirectory = None,
    assignments: Assignments = None,
) -> None:
    """Serve all enabled protocols before the stores of a cluster until SIGTERM or Ctrl-C."""
    loaded = load_settings(config, data, [AS_GATEWAY, *(assignments or ())])
    check_packages()
    from gateway.app import run

    raise typer.Exit(run(loaded.settings))
