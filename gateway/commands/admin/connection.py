"""`weir connection`: who is connected, at all gateways."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.commands.common.api import Facts, path_of
from gateway.commands.common.options import FormatOption, TenantOptions, YesOption, with_groups
from gateway.commands.common.output import CommandError, ExitCode, Format, Table, put, say
from gateway.commands.common.values import confirm

app = typer.Typer(help="Who is connected.", no_args_is_help=True)

Ident = Annotated[str, typer.Argument(metavar="CONNECTION", help="Its id, as `ls` shows it.")]
UserOption = Annotated[str | None, typer.Option("--user", help="Of this user only.")]
NodeOption = Annotated[str | None, typer.Option("--node", help="At this gateway only.")]
ConsumesOption = Annotated[
    str | None, typer.Option("--consumes", help="Those that consume this queue, or by this filter.")
]
ProtocolOption = Annotated[str | None, typer.Option("--protocol", help="By this protocol only.")]
SortOption = Annotated[
    str, typer.Option("--sort", help="By a column; -COLUMN: from the largest down.")
]
LimitOption = Annotated[int, typer.Option("--limit", min=1, help="The most that are listed.")]
ReasonOption = Annotated[str | None, typer.Option("--reason", help="Told to the client.")]

COLUMNS = (
    "id",
    "node",
    "tenant",
    "user",
    "peer",
    "protocol",
    "client_id",
    "client",
    "state",
    "channels",
    "consumers",
    "connected_s",
    "waits_for",
)


@app.command("ls")
@with_groups
def list_connections(
    user: UserOption = None,
    protocol: ProtocolOption = None,
    consumes: ConsumesOption = None,
    node: NodeOption = None,
    sort: SortOption = "id",
    limit: LimitOption = 1_000,
    *,
    server: TenantOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """List the connections of all gateways; those that do not answer are named."""
    api = server.connect()
    silent: dict[str, str] = {}

    def heard(page: Facts) -> None:
        silent.update({each["gateway"]: each["reason"] for each in page.get("silent", ())})

    rows, _ = api.pages(
        "connections",
        limit,
        heard,
        user=user,
        protocol=protocol,
        consumes=consumes,
        node=node,
        sort=sort,
    )
    shown = [tuple(_text(each[name]) for name in COLUMNS) for each in rows]
    listed = [{"gateway": gateway, "reason": reason} for gateway, reason in silent.items()]
    put({"connections": rows, "silent": listed}, Table(COLUMNS, shown), output)
    for gateway, reason in silent.items():
        say(f"without gateway {gateway}: {reason}")


@app.command("info")
@with_groups
def show_connection(
    connection: Ident, *, server: TenantOptions, output: FormatOption = Format.TABLE
) -> None:
    """Show one with its channels, what it consumes, and its rates."""
    found = server.connect().get(path_of("connections", connection))
    own = found["connection"]
    rates = own.pop("rates") or {}
    rows = [(name, _text(value)) for name, value in own.items()]
    rows += [(f"{name} a second", _text(value)) for name, value in rates.items()]
    for channel in found["channels"]:
        where = f"channel {channel['number']}"
        unacked = channel["messages_unacknowledged"]
        rows.append((where, f"{channel['state']}, {unacked} unacknowledged"))
        rows += [
            (f"{where} consumes", f"{each['queue']} ({each['consumer_tag']})")
            for each in channel["consumers"]
        ]
    put(found, Table(("connection", own["id"]), rows), output)


@app.command("close")
@with_groups
def close_connection(
    connection: Annotated[
        str | None, typer.Argument(metavar="[CONNECTION]", help="Its id, as `ls` shows it.")
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", help="All of this user, at every gateway.")
    ] = None,
    reason: ReasonOption = None,
    yes: YesOption = False,
    *,
    server: TenantOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Close a connection, or all of a user; its client may come back."""
    if (connection is None) == (user is None):
        raise CommandError("name a connection, or --user", ExitCode.USAGE)
    api = server.connect()
    if connection is not None:
        api.delete(path_of("connections", connection), reason=reason)
        put({"connection": connection}, Table(("closed",), [(connection,)]), output)
        return
    confirm(f"Closing every connection of {user}", str(user), yes=yes)
    api.delete("/connections", user=user, reason=reason)
    put({"user": user}, Table(("closed",), [(f"all of {user}",)]), output)


def _text(value: object) -> str:
    return f"{value:.0f}" if isinstance(value, float) else str(value)
