"""`weir session`: sessions of MQTT clients."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.commands.common.api import path_of
from gateway.commands.common.options import FormatOption, TenantOptions, YesOption, with_groups
from gateway.commands.common.output import Format, Table, put
from gateway.commands.common.values import confirm

app = typer.Typer(help="Sessions of MQTT clients.", no_args_is_help=True)

ClientId = Annotated[str, typer.Argument(metavar="CLIENT", help="Client id of the session.")]


@app.callback()
def session() -> None:
    """Make `rm` a word of its own: an application of one command would be that command."""


@app.command("rm")
@with_groups
def remove_session(
    client: ClientId,
    yes: YesOption = False,
    *,
    server: TenantOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """End a session, whosever it is; its client id is free then."""
    confirm(
        f"Dropping the session of {client} disconnects it and deletes what waits for it",
        client,
        yes=yes,
    )
    server.connect().delete(path_of("sessions", client))
    put({"client": client}, Table(("removed",), [(client,)]), output)
