"""`weir message trace`: where a message lies, and what has become of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.commands.common.api import path_of
from gateway.commands.common.options import FormatOption, TenantOptions, with_groups
from gateway.commands.common.output import CommandError, ExitCode, Format, Table, put
from gateway.commands.common.values import milliseconds
from kernel.store.drivers.system import SystemClock

if TYPE_CHECKING:
    from gateway.commands.common.api import Facts

MOST_DEFAULT = 1_000_000
PAGE = 50_000


@with_groups
def trace(
    message: Annotated[
        str, typer.Argument(metavar="ID", help="Its uid, or the id its publisher gave it.")
    ],
    topic: Annotated[str, typer.Option("--topic", help="Where it is, or was.")],
    since: Annotated[
        str | None, typer.Option("--since", help="Only among those stored within so long (2h).")
    ] = None,
    most: Annotated[
        int, typer.Option("--most", help="The most messages that are looked at.", min=1)
    ] = MOST_DEFAULT,
    *,
    server: TenantOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Say where a message lies, and for each group whether it waits, who has it until when, how
    often it has failed, or that the group is done with it. Nothing is leased, nothing is counted.
    """
    api = server.connect()
    since_ms = None if since is None else SystemClock().wall_ms() - milliseconds(since)
    found: list[Facts] = []
    looked_at, queue, offset, more = 0, 0, 0, True
    while more and not found and looked_at < most:
        page = api.get(
            path_of("topics", topic, "trace", message),
            from_queue=queue,
            offset=offset,
            since_ms=since_ms,
            limit=min(PAGE, most - looked_at),
        )
        found += page["found"]
        looked_at += page["looked_at"]
        more = page["next"] is not None
        queue, offset = page["next"] or (0, 0)
    if not found:
        where = f"among {looked_at} messages of {topic}"
        rest = "; there are more: --since or --most" if more else ", which are all it keeps"
        raise CommandError(f"no message {message} {where}{rest}", ExitCode.NOT_FOUND)
    put({"found": found}, _table(found), output)


def _table(found: list[Facts]) -> Table:
    rows = []
    for each in found:
        own = each["message"]
        place = f"queue {own['queue']}, offset {own['offset']}"
        what = f"{own['size_bytes']} bytes, published {_time(own['published_ms'])}"
        rows.append((place, f"{what} by {own['writer']}"))
        deaths = own.get("dead_letters", [])
        rows += [(place, f"came as a dead letter: {death}") for death in deaths]
        rows += [(f"group {group['group']}", _standing(group)) for group in each["groups"]]
    return Table(("where", "what"), rows)


def _standing(group: Facts) -> str:
    until = group["until_ms"]
    words = [group["state"] if until is None else f"{group['state']} until {_time(until)}"]
    if group["failures"]:
        words.append(f"{group['failures']} deliveries came to nothing")
    if group["state"] == "waiting" and not group["consumers"]:
        words.append("no consumer is attached")
    return ", ".join(words)


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1_000, UTC).isoformat(timespec="milliseconds")
