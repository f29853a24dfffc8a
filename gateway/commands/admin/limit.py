"""`weir limit`: what tenants, users, topics and listeners may use (docs/capacity.md)."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.commands.common.api import Facts, path_of
from gateway.commands.common.options import FormatOption, TenantOptions, YesOption, with_groups
from gateway.commands.common.output import CommandError, ExitCode, Format, Table, put
from gateway.commands.common.values import confirm

app = typer.Typer(
    help="Limits of what tenants, users, topics and listeners may use.", no_args_is_help=True
)

Scope = Annotated[str, typer.Argument(metavar="SCOPE", help="tenant, user, topic or listener.")]
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Of whom; '*': each without limits of its own.")
]
Limits = Annotated[
    list[str],
    typer.Argument(
        metavar="KIND=NUMBER...", help="As published_messages=1000; KIND=none lifts it."
    ),
]
LIFTED = "none"


@app.command("ls")
@with_groups
def list_limits(*, server: TenantOptions, output: FormatOption = Format.TABLE) -> None:
    """List limits, and what of them is used at the server that is asked; with --tenant of that one.
    Below them who uses what each that is not named may.
    """
    found = server.connect().get("/limits")
    used = {_limit(each, each["kind"]): str(each["used"]) for each in found["used"]}
    rows = [
        (*_limit(each, kind), str(limit), used.get(_limit(each, kind), ""))
        for each in found["limits"]
        for kind, limit in each["limits"].items()
    ]
    named = {row[:2] for row in rows}
    rows += [
        (*_limit(each, each["kind"]), str(each["limit"]), str(each["used"]))
        for each in found["used"]
        if each["used"] and _limit(each, each["kind"]) not in named
    ]
    put(found, Table(("limit", "of", "allowed", "used"), rows), output)


@app.command("set")
@with_groups
def set_limit(
    scope: Scope,
    name: Name,
    limits: Limits,
    *,
    server: TenantOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Set limits, for who is connected too. Those that are not named stay."""
    changes = dict(map(_pair, limits))
    done = server.connect().patch(path_of("limits", scope, name), changes)
    rows = [(*_limit(done, kind), str(limit)) for kind, limit in done["limits"].items()]
    put(done, Table(("limit", "of", "allowed"), rows), output)


@app.command("rm")
@with_groups
def remove_limit(
    scope: Scope,
    name: Name,
    yes: YesOption = False,
    *,
    server: TenantOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Forget what was set at run time; what the settings say holds again."""
    confirm(f"Forgetting the limits of {scope} {name}", name, yes=yes)
    server.connect().delete(path_of("limits", scope, name))
    put({"scope": scope, "name": name}, Table(("removed",), [(f"{scope} {name}",)]), output)


def _limit(whose: Facts, kind: str) -> tuple[str, str]:
    """What is limited, and of whom."""
    return f"{whose['scope']}.{kind}", ":".join(filter(None, (whose["tenant"], whose["name"])))


def _pair(text: str) -> tuple[str, int | None]:
    kind, _, limit = text.partition("=")
    if limit == LIFTED:
        return kind, None
    if not (limit.isascii() and limit.isdigit()):
        message = f"{text} is not KIND=NUMBER, as published_messages=1000"
        raise CommandError(message, ExitCode.USAGE)
    return kind, int(limit)
