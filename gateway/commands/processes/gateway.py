"""`weir gateway`: serve clients before a cluster's stores until it is told to stop."""

from __future__ import annotations

import typer

from gateway.commands.common.options import SettingsOptions, with_groups
from gateway.commands.processes.serve import check_packages

AS_GATEWAY = "node.role=gateway"
"""What the command says, the settings need not say too."""


@with_groups
def gateway(*, settings: SettingsOptions) -> None:
    """Serve all enabled protocols before the stores of a cluster until SIGTERM or Ctrl-C."""
    loaded = settings.load(AS_GATEWAY)
    check_packages()
    from gateway.app import run

    raise typer.Exit(run(loaded.settings, loaded))
