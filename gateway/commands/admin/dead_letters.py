"""`weir dead-letters`: where dead letters wait, and bringing them back; and moves in general."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.commands.common.api import path_of
from gateway.commands.common.options import FormatOption, TenantOptions, with_groups
from gateway.commands.common.output import CommandError, ExitCode, Format, Table, put, say
from gateway.commands.common.values import pause, put_one, text

if TYPE_CHECKING:
    from gateway.commands.common.api import Api, Facts

app = typer.Typer(
    help="Dead letters: where they wait, and bringing them back.", no_args_is_help=True
)

LOOK_S = 0.5
"""Between two looks at a task that is waited for."""

FAILURES = {
    "no_origin": "a message never was a dead letter: say with `weir message move` where to",
    "no_destination": "the topic to move to does not exist",
    "no_source": "the topic or group was deleted",
}

TopicName = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The topic in which they wait (see `ls`).")
]
Rate = Annotated[
    int | None, typer.Option("--rate", help="Messages a second, 1 to 500, which is the default.")
]
Wait = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Return when it is done, or once it has begun.")
]


@app.command("ls")
@with_groups
def list_dead_letters(
    topic: Annotated[
        str | None,
        typer.Argument(metavar="[TOPIC]", help="Only those of this topic, or in it."),
    ] = None,
    *,
    server: TenantOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """List topics of dead letters: whose they are, how many wait, what brings them back."""
    api = server.connect()
    rows: list[Facts] = []
    after: str | None = ""
    while after is not None:
        page = api.get("/dead-letters", after=after, topic=topic)
        rows += page["dead_letters"]
        after = page["next"]
    put({"dead_letters": rows}, Table(("topic", "waiting", "of", "moving"), _table(rows)), output)


def _table(rows: list[Facts]) -> list[tuple[str, ...]]:
    return [
        (
            row["name"],
            ", ".join(f"{each['ready']} ({each['group']})" for each in row["waiting"])
            or ("-" if row["exists"] else "no such topic"),
            ", ".join(f"{each['topic']} ({each['group']})" for each in row["sources"]),
            _progress(row["moving"]) if row["moving"] else "-",
        )
        for row in rows
    ]


@app.command()
@with_groups
def redrive(
    topic: TopicName,
    group: Annotated[str, typer.Option("--group", help="Whose ready messages.")] = "default",
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", help="Most messages; else all ready now.", min=1)
    ] = None,
    rate: Rate = None,
    wait: Wait = True,
    *,
    server: TenantOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Bring dead letters back to the topics that they came from, each as a new message, once."""
    asked = {"group": group, "limit": limit, "per_second": rate}
    run_move(server.connect(), topic, asked, output, wait=wait)


@app.command("moves")
@with_groups
def list_moves(
    topic: TopicName, *, server: TenantOptions, output: FormatOption = Format.TABLE
) -> None:
    """List the last ten tasks that moved messages out of a topic, whoever began them."""
    rows = _moves(server.connect(), topic)
    columns = ("id", "state", "progress", "to", "group", "rate")
    shown = [
        (
            row["id"],
            row["state"],
            _progress(row),
            text(row["to"]),
            row["group"],
            text(row["per_second"]),
        )
        for row in rows
    ]
    put({"moves": rows}, Table(columns, shown), output)


@app.command()
@with_groups
def cancel(topic: TopicName, *, server: TenantOptions, output: FormatOption = Format.TABLE) -> None:
    """End the task that moves messages out of a topic; what it has moved stays moved."""
    api = server.connect()
    running = [each for each in _moves(api, topic) if each["state"] == "running"]
    if not running:
        raise CommandError(f"nothing moves messages of {topic}", ExitCode.NOT_FOUND)
    task = running[0]["id"]
    moved = api.delete(path_of("topics", topic, "moves", task))["moved"]
    answer = {"id": task, "moved": moved}
    put(answer, Table(("cancelled", "moved"), [(task, str(moved))]), output)


def run_move(api: Api, topic: str, asked: Facts, output: Format, *, wait: bool) -> None:
    """Begin a task and show it, once it has ended if `wait`. Raises CommandError if it failed."""
    ident = api.post(path_of("topics", topic) + "/moves", asked)["id"]
    task = _task(api, topic, ident)
    try:
        while wait and task["state"] == "running":
            pause(LOOK_S)
            task = _task(api, topic, ident)
    except KeyboardInterrupt:
        say(f"it goes on by itself; `weir dead-letters cancel {topic}` ends it")
    put_one(task, ident, task.items(), output)
    failure: str | None = task["failure"]
    if failure is not None:
        raise CommandError(FAILURES.get(failure, failure))


def _moves(api: Api, topic: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = api.get(path_of("topics", topic) + "/moves")["moves"]
    return rows


def _task(api: Api, topic: str, ident: str) -> Facts:
    for each in _moves(api, topic):
        if each["id"] == ident:
            return each
    raise CommandError(f"task {ident} is remembered no more: {topic} has had ten since")


def _progress(task: Facts) -> str:
    return f"{task['moved']} of {task['to_move']}"
