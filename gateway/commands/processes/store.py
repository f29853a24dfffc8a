"""`weir store`: run one store of a cluster until it is told to stop."""

from __future__ import annotations

import typer

from gateway.commands.common.options import SettingsOptions, with_groups
from gateway.commands.processes.serve import check_packages

AS_STORE = "node.role=store"
"""What the command says, the settings need not say too."""


@with_groups
def store(*, settings: SettingsOptions) -> None:
    """Run a store of a cluster until SIGTERM or Ctrl-C; its leaderships go to others first."""
    loaded = settings.load(AS_STORE)
    check_packages()
    from gateway.app import run

    raise typer.Exit(run(loaded.settings))
