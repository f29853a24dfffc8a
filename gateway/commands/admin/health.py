"""`weir health`: whether a node serves and takes messages; exit code 3 if not."""

from __future__ import annotations

import typer

from gateway.commands.common.options import FormatOption, ServerOptions, with_groups
from gateway.commands.common.output import CommandError, ExitCode, Format, Table, put
from gateway.commands.common.reaching import NoAnswer
from gateway.commands.common.values import text


@with_groups
def health(*, server: ServerOptions, output: FormatOption = Format.TABLE) -> None:
    """Say how a node is: exit code 0 if every check is well, 3 if one is not or none answers."""
    try:
        found = server.connect().call("GET", "/health", good=(200, 503))
        checks, status = found["checks"], found["status"]
    except NoAnswer as error:
        raise CommandError(error.message, ExitCode.UNHEALTHY, error.hint) from error
    rows = [(check["name"], text(check["ok"]), text(check["reason"])) for check in checks]
    put(found, Table(("check", "ok", "reason"), rows), output)
    if status != "ok":
        raise typer.Exit(ExitCode.UNHEALTHY)
