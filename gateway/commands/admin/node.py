"""`weir node`: the gateways of a cluster, whom they serve, and moving one's clients to others."""

from __future__ import annotations

import threading
from typing import Annotated

import typer

from gateway.commands.common.api import Api, Facts, path_of
from gateway.commands.common.options import FormatOption, ServerOptions, with_groups
from gateway.commands.common.output import CommandError, ExitCode, Format, Table, put, say
from gateway.commands.common.values import text
from kernel.store.drivers.system import SystemClock

app = typer.Typer(help="The gateways of a cluster.", no_args_is_help=True)

WAIT_SECONDS = 120
"""For clients to go: most are told within seconds, and some answer slowly."""

LOOK_SECONDS = 0.5

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="As `weir node ls` shows it.")]


@app.command("ls")
@with_groups
def show(
    tasks: Annotated[
        bool, typer.Option("--tasks", help="Show which topics they serve to whom instead.")
    ] = False,
    *,
    server: ServerOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show every gateway: its clients, its traffic, whether it is being drained."""
    found = server.connect().get("/cluster/gateways")
    put(found, _tasks(found) if tasks else _gateways(found), output)
    say_unlike(found)


def say_unlike(found: Facts) -> None:
    """Say which gateways have other tenants or limits than others, if some do."""
    unlike = [each["name"] for each in found["gateways"] if each["unlike"]]
    if unlike:
        say(
            f"the settings tenants or limits are not the same at {', '.join(unlike)}: compare"
            " `weir tenant ls` and `weir limit ls --data DIR` of each, and give all the same"
        )


def _gateways(found: Facts) -> Table:
    columns = ("name", "stage", "load", "host", "clients", "bytes/s", "moved", "version", "tenants")
    rows = [
        (
            text(each["name"]),
            text(each["stage"]),
            text(each["load"]),
            text(each["label"]),
            ", ".join(f"{kind} {count}" for kind, count in sorted(each["clients"].items())),
            text(each["traffic"]),
            text(each["moved"]),
            text(each["version"]),
            _likeness(each),
        )
        for each in found["gateways"]
    ]
    return Table(columns, rows)


def _likeness(gateway: Facts) -> str:
    """Whose tenants are others; a gateway of an older version does not tell its own."""
    if gateway["unlike"]:
        return f"unlike {', '.join(gateway['unlike'])}"
    return "alike" if gateway["settings"] else text(None)


def _tasks(found: Facts) -> Table:
    names = ("role", "topic", "group", "kind", "amount")
    rows = [
        (*(text(task[name] or None) for name in names[:4]), text(task["amount"]), each["name"])
        for each in found["gateways"]
        for task in each["tasks"]
    ]
    rows = [(topic, role, group, kind, amount, at) for role, topic, group, kind, amount, at in rows]
    return Table(("topic", "role", "group", "protocol", "amount", "gateway"), sorted(rows))


@app.command("drain")
@with_groups
def drain(
    name: NameArgument,
    undo: Annotated[
        bool, typer.Option("--undo", help="Let it have clients again, after it was drained.")
    ] = False,
    wait: Annotated[
        int, typer.Option("--wait", metavar="SECONDS", help="How long to wait for it.", min=0)
    ] = WAIT_SECONDS,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Then say who is left, and call it drained: they are cut off."
        ),
    ] = False,
    *,
    server: ServerOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Have a gateway's clients go to the others, each in its protocol's own way."""
    api = server.connect()
    api.post(path_of("cluster", "gateways", name, "drain"), {"undo": undo})
    if undo:
        say(f"{name} serves clients again")
    else:
        _await_empty(api, name, wait, force=force)
    stage = "serving" if undo else "drained"
    put({"name": name, "stage": stage}, Table(("name", "stage"), [(name, stage)]), output)


def _await_empty(api: Api, name: str, seconds: int, *, force: bool) -> None:
    """Return once a gateway has no clients, or (`force`) after so long. Raises CommandError."""
    clock = SystemClock()
    ends_ms = clock.monotonic_ms() + seconds * 1_000
    pause = threading.Event()
    while True:
        known = {each["name"]: each for each in api.get("/cluster/gateways")["gateways"]}
        if name not in known or known[name]["stage"] == "drained":
            say(f"{name} has no clients: it can be stopped")
            return
        if clock.monotonic_ms() >= ends_ms:
            left = _left(known[name])
            if force:
                say(f"{name} can be stopped, which cuts off who is left after {seconds} s: {left}")
                return
            raise CommandError(
                f"{name} still has clients after {seconds} s: {left}",
                ExitCode.FAILED,
                "they go on being asked, less and less often: wait longer with --wait SECONDS, or"
                " stop it all the same with --force",
            )
        pause.wait(LOOK_SECONDS)


def _left(gateway: Facts) -> str:
    """Who is still there, and who of them comes straight back."""
    clients = sorted(gateway["clients"].items())
    left = ", ".join(f"{kind} {count}" for kind, count in clients if count)
    back = "; ".join(
        f"{each['kind']} client {each['who']} has come back {each['times']} times"
        for each in gateway["staying"]
    )
    if back:
        left += f" ({back}: perhaps they know no other address)"
    return left or "it has not told yet"
