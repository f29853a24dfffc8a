"""`weir session`: sessions of MQTT clients."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.commands.api import DataOption, TenantOption, UrlOption, connect, path_of
from gateway.commands.output import Format, FormatOption, Table, put
from gateway.commands.values import YesOption, confirm

app = typer.Typer(help="Sessions of MQTT clients.", no_args_is_help=True)

ClientId = Annotated[str, typer.Argument(metavar="CLIENT", help="Client id of the session.")]


@app.callback()
def session() -> None:
    """Make `rm` a word of its own: an application of one command would be that command."""


@app.command("rm")
def remove_session(
    client: ClientId,
    yes: YesOption = False,
    url: UrlOption = None,
    data: DataOption = None,
    tenant: TenantOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """End a session, whosever it is; its client id is free then."""
    confirm(
        f"Dropping the session of {client} disconnects it and deletes what waits for it",
        client,
        yes=yes,
    )
    connect(url, data, tenant).delete(path_of("sessions", client))
    put({"client": client}, Table(("removed",), [(client,)]), output)
