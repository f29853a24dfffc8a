"""`weir tenant`: the tenants there are. They are made in the settings, not here."""

from __future__ import annotations

import typer

from gateway.commands.common.options import FormatOption, ServerOptions, with_groups
from gateway.commands.common.output import Format, Table, put
from gateway.commands.common.values import text

app = typer.Typer(help="Tenants: the settings name them, below `tenants`.", no_args_is_help=True)


@app.callback()
def tenant() -> None:
    """Make `ls` a word of its own: an application of one command would be that command."""


@app.command("ls")
@with_groups
def list_tenants(*, server: ServerOptions, output: FormatOption = Format.TABLE) -> None:
    """List tenants, and what each protocol calls them."""
    found = server.connect().get("/tenants")
    # Each protocol with a word for a tenant has its column.
    columns = tuple(found["tenants"][0])
    shown = [tuple(text(row[column]) for column in columns) for row in found["tenants"]]
    put(found, Table(columns, shown), output)
