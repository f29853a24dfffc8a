"""`weir session`: kept sessions of MQTT clients."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.commands.common.api import path_of
from gateway.commands.common.options import FormatOption, TenantOptions, YesOption, with_groups
from gateway.commands.common.output import Format, Table, put
from gateway.commands.common.values import confirm

app = typer.Typer(help="Sessions of MQTT clients.", no_args_is_help=True)

ClientId = Annotated[str, typer.Argument(metavar="CLIENT", help="Client id of the session.")]


COLUMNS = ("client", "user", "connected", "ends_in_s", "subscriptions", "exchanges", "has_will")


@app.command("ls")
@with_groups
def list_sessions(
    prefix: Annotated[str, typer.Option("--prefix", help="Client ids that begin so.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, help="The most that are listed.")] = 1_000,
    *,
    server: TenantOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """List the sessions that are kept when their clients are away, and those of who is here."""
    rows, _ = server.connect().pages("sessions", limit, prefix=prefix or None)
    shown = [tuple(_text(each[name]) for name in COLUMNS) for each in rows]
    put({"sessions": rows}, Table(COLUMNS, shown), output)


@app.command("info")
@with_groups
def show_session(
    client: ClientId, *, server: TenantOptions, output: FormatOption = Format.TABLE
) -> None:
    """Show a session with its subscriptions, and how many messages wait for each."""
    found = server.connect().get(path_of("sessions", client))
    rows = [(name, _text(value)) for name, value in found["session"].items()]
    rows.append(("waiting", _text(found["waiting"])))
    for each in found["subscriptions"]:
        share = f"$share/{each['share']}/" if each["share"] else ""
        rows.append((f"{share}{each['filter']}", f"{_text(each['waiting'])} waiting"))
    put(found, Table(("session", client), rows), output)


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


def _text(value: object) -> str:
    return "-" if value is None else f"{value:.0f}" if isinstance(value, float) else str(value)
