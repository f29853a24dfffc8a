"""The options by which a command is told its settings, and reading them.

`weir serve`, `weir config show` and `weir config check` take the same ones, so that what is shown
and checked is what would be served.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gateway.commands.output import CommandError, ExitCode
from gateway.config.loading import ConfigError, Loaded, load

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="YAML file with the changed settings only."),
]
DataDirectory = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Data directory: short for --set node.data=DIR."),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change one setting; may be repeated."),
]


def load_settings(config: Path | None, data: Path | None, assignments: list[str] | None) -> Loaded:
    """Return the settings the options ask for. CommandError (usage) listing every problem."""
    changes = [f"node.data={data}"] if data is not None else []
    try:
        return load(config, [*changes, *(assignments or ())])
    except ConfigError as error:
        lines = "\n".join(f"  {problem}" for problem in error.problems)
        message = f"the settings cannot be used:\n{lines}"
        hint = "`weir config show` lists every setting and its value"
        raise CommandError(message, ExitCode.USAGE, hint) from error
