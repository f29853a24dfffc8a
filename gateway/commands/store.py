"""`weir store`: run one store of a cluster until it is told to stop."""

from __future__ import annotations

import typer

from gateway.commands.options import Assignments, ConfigFile, DataDirectory, load_settings
from gateway.commands.serve import check_packages

AS_STORE = "node.role=store"
"""What the command says, the settings need not say too."""


def store(
    config: ConfigFile = None,
    data: DataDirectory = None,
    assignments: Assignments = None,
) -> None:
    """Run a store of a cluster until SIGTERM or Ctrl-C; its leaderships go to others first."""
    loaded = load_settings(config, data, [AS_STORE, *(assignments or ())])
    check_packages()
    from gateway.app import run

    raise typer.Exit(run(loaded.settings))
