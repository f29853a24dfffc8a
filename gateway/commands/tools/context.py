"""`weir context`: servers by name, with whom to sign in as there. Secrets are never shown."""

from __future__ import annotations

import getpass
import os
import sys
from typing import Annotated

import msgspec
import typer

from gateway.commands.common.contexts import (
    Context,
    Contexts,
    context_named,
    read_contexts,
    write_contexts,
)
from gateway.commands.common.options import FormatOption, YesOption
from gateway.commands.common.output import CommandError, ExitCode, Format, Table, put
from gateway.commands.common.reaching import checked_url
from gateway.commands.common.values import CHANGED, CREATED, NONE, confirm, put_one, text

app = typer.Typer(
    help="Servers by name, with whom to sign in as: kept in a file of yours.", no_args_is_help=True
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the context.")]


@app.command("ls")
def list_contexts(output: FormatOption = Format.TABLE) -> None:
    """List what is kept, and which one is in use."""
    found = read_contexts()
    rows = [_row(found, name) for name in sorted(found.contexts)]
    columns = ("name", "url", "login", "tenant", "secret_kept", "in_use")
    table = Table(columns, [tuple(text(row[column]) for column in columns) for row in rows])
    put({"contexts": rows}, table, output)


@app.command("use")
def use(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the context, or none.")],
    output: FormatOption = Format.SUMMARY,
) -> None:
    """Have commands that name no server ask this one. WEIR_CONTEXT goes before it."""
    found = read_contexts()
    if name != NONE:
        context_named(found, name)
    current = None if name == NONE else name
    write_contexts(msgspec.structs.replace(found, current=current))
    put_one({"current": current}, name, [("current", current)], output, f"{name} is in use")


@app.command("set")
def set_context(
    name: NameArgument,
    url: Annotated[
        str | None, typer.Option("--url", metavar="URL", help="Admin address; a new one takes it.")
    ] = None,
    login: Annotated[
        str | None,
        typer.Option("--login", metavar="LOGIN", help="USER, or TENANT:USER; or none: the token."),
    ] = None,
    tenant: Annotated[
        str | None, typer.Option("--tenant", metavar="NAME", help="Whose; or none.")
    ] = None,
    keep_secret: Annotated[
        bool,
        typer.Option(
            "--keep-secret",
            help="Keep the password (WEIR_PASSWORD, or typed) or token (WEIR_TOKEN) as well.",
            show_default=False,
        ),
    ] = False,
    output: FormatOption = Format.SUMMARY,
) -> None:
    """Make a context, or change what is given of one.

    A secret that is kept goes when the address or the login changes: it was meant for those.
    """
    if not name or not name.isprintable() or name == NONE:
        raise CommandError(f"{name!r} is no name of a context", ExitCode.USAGE)
    found = read_contexts()
    old = found.contexts.get(name)
    if url is None and old is None:
        raise CommandError("a new context takes --url", ExitCode.USAGE)
    address = checked_url(url) if url is not None else context_named(found, name).url
    new = Context(
        url=address,
        login=_or_old(login, old.login if old is not None else None),
        tenant=_or_old(tenant, old.tenant if old is not None else None),
    )
    if keep_secret:
        new = msgspec.structs.replace(new, secret=_secret(new))
    elif old is not None and (old.url, old.login) == (new.url, new.login):
        new = msgspec.structs.replace(new, secret=old.secret)
    kept = msgspec.structs.replace(found, contexts={**found.contexts, name: new})
    write_contexts(kept)
    row = _row(kept, name)
    summary = f"{CREATED if old is None else CHANGED} {name}: {address}"
    put_one(row, name, row.items(), output, summary)


@app.command("rm")
def remove(
    name: NameArgument, yes: YesOption = False, output: FormatOption = Format.SUMMARY
) -> None:
    """Forget a context, and what is kept of it."""
    found = read_contexts()
    context_named(found, name)
    confirm(f"forgetting the context {name}", name, yes=yes)
    left = {each: context for each, context in found.contexts.items() if each != name}
    current = None if found.current == name else found.current
    write_contexts(Contexts(current=current, contexts=left))
    put_one({"removed": name}, name, [("removed", name)], output, f"removed {name}")


def _row(found: Contexts, name: str) -> dict[str, object]:
    context = found.contexts[name]
    return {
        "name": name,
        "url": context.url,
        "login": context.login,
        "tenant": context.tenant,
        "secret_kept": context.secret is not None,
        "in_use": name == found.current,
    }


def _or_old(given: str | None, old: str | None) -> str | None:
    return old if given is None else None if given == NONE else given


def _secret(context: Context) -> str:
    """What signs in there: of the environment, or typed. Raises CommandError (usage)."""
    variable = "WEIR_TOKEN" if context.login is None else "WEIR_PASSWORD"
    given = os.environ.get(variable)
    if given:
        return given
    if not sys.stdin.isatty():
        raise CommandError(f"put it in the variable {variable}", ExitCode.USAGE)
    return getpass.getpass(f"{variable.removeprefix('WEIR_').capitalize()}: ", stream=sys.stderr)
