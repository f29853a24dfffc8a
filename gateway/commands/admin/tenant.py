"""`weir tenant`: tenants, made, changed and removed while everything runs (docs/tenants.md)."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.commands.common.api import path_of
from gateway.commands.common.options import FormatOption, ServerOptions, YesOption, with_groups
from gateway.commands.common.output import CommandError, ExitCode, Format, Table, put
from gateway.commands.common.values import (
    confirm,
    number_or_none,
    pairs,
    put_one,
    text,
)

app = typer.Typer(help="Tenants, each with names, limits and users of its own.")

Name = Annotated[str, typer.Argument(metavar="TENANT", help="Name of the tenant, for good.")]
KnownAs = Annotated[
    list[str] | None,
    typer.Option(
        "--known-as",
        metavar="PROTOCOL=NAME",
        help="What a protocol calls it, as amqp=shop; may be repeated. PROTOCOL=: by its own name.",
    ),
]
Limits = Annotated[
    list[str] | None,
    typer.Option(
        "--limit", metavar="KIND=NUMBER", help="As published_messages=1000; may be repeated."
    ),
]
SignIn = Annotated[
    bool | None, typer.Option("--sign-in/--no-sign-in", help="Whether anybody of it signs in.")
]
Wait = Annotated[
    int, typer.Option("--wait", metavar="SECONDS", help="For it to be gone; 0: do not wait.")
]

WAIT_SECONDS = 30
"""The server waits so long in one request."""


@app.callback(no_args_is_help=True)
def tenant() -> None:
    """Make the group show its commands where none is named."""


@app.command("ls")
@with_groups
def list_tenants(*, server: ServerOptions, output: FormatOption = Format.TABLE) -> None:
    """List tenants, and what each protocol calls them."""
    found = server.connect().get("/tenants")
    # Each protocol with a word for a tenant has its column.
    columns = tuple(found["tenants"][0])
    shown = [tuple(text(row[column]) for column in columns) for row in found["tenants"]]
    put(found, Table(columns, shown), output)


@app.command("info")
@with_groups
def show_tenant(name: Name, *, server: ServerOptions, output: FormatOption = Format.TABLE) -> None:
    """Show one: its names, limits, state, and how much it has."""
    found = server.connect().get(path_of("tenants", name))
    put_one(found, name, found.items(), output)


@app.command("add")
@with_groups
def add_tenant(
    name: Name,
    known_as: KnownAs = None,
    limits: Limits = None,
    sign_in: SignIn = None,
    same_customer: Annotated[
        bool,
        typer.Option(
            "--same-customer",
            help="One of that name was removed in this month, and was the same customer.",
        ),
    ] = False,
    *,
    server: ServerOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Make a tenant. Its users, first of all who administers it, are made by
    `weir user create NAME --tenant TENANT --policy administrator --password`.
    """
    new = {
        "name": name,
        "known_as": {each: shown for each, shown in pairs(known_as, "--known-as").items() if shown},
        "limits": _limits(limits),
        "sign_in": sign_in is not False,
        "same_customer": same_customer,
    }
    made = server.connect().post("/tenants", new)
    put_one(made, name, made.items(), output)


@app.command("set")
@with_groups
def set_tenant(
    name: Name,
    known_as: KnownAs = None,
    limits: Limits = None,
    sign_in: SignIn = None,
    *,
    server: ServerOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Change names, limits, and whether anybody signs in. What is not named stays."""
    fields: dict[str, Any] = {
        "known_as": {each: shown or None for each, shown in pairs(known_as, "--known-as").items()},
        "limits": _limits(limits),
    }
    if sign_in is not None:
        fields["sign_in"] = sign_in
    changed = server.connect().patch(path_of("tenants", name), fields)
    put_one(changed, name, changed.items(), output)


@app.command("rm")
@with_groups
def remove_tenant(
    name: Name,
    yes: YesOption = False,
    wait: Wait = 60,
    *,
    server: ServerOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Remove a tenant with its users, keys, policies, limits, topics, messages and sessions."""
    confirm(f"Removing the tenant {name} with all that it has", name, yes=yes)
    api = server.connect()
    shown = api.call("DELETE", path_of("tenants", name), good=(202,))
    left = wait
    while shown["state"] != "gone" and left > 0:
        shown = api.get(path_of("tenants", name), wait=min(left, WAIT_SECONDS))
        left -= WAIT_SECONDS
    if wait and shown["state"] != "gone":
        message = f"the tenant {name} is still being removed: {shown['topics']} topics are left"
        raise CommandError(message, ExitCode.FAILED)
    put_one(shown, name, shown.items(), output)


def _limits(given: list[str] | None) -> dict[str, int | None]:
    return {kind: number_or_none(each) for kind, each in pairs(given, "--limit").items()}
