"""`weir message consume`: what a group has yet to consume, a line of JSON each.

Without `--ack` nothing is touched: the log is read from the first message that the group is not
done with, so that others' leases and attempts stay as they are. With it messages are leased,
written out, and acked only then: what could not be written is given back.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.commands.common.api import path_of
from gateway.commands.common.options import FormatOption, TenantOptions, with_groups
from gateway.commands.common.output import CommandError, Format, Table, put, put_line, say
from gateway.commands.common.values import pause, text

if TYPE_CHECKING:
    from gateway.commands.common.api import Api, Facts

BODY_CHARACTERS = 60
"""Of a body in a table; the other forms have all of it."""

PAGE = 100
WAIT_MS = 15_000
"""For the next message while it follows."""

LOOK_S = 1.0
"""Between two looks at what is new, without `--ack`."""


@with_groups
def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")],
    group: Annotated[str, typer.Option("--group", help="Whose messages.")] = "default",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what comes from now on.")
    ] = False,
    ack: Annotated[
        bool, typer.Option("--ack", help="Take them: nobody else of the group gets them.")
    ] = False,
    count: Annotated[
        int | None, typer.Option("--count", "-n", help="Most messages.", min=1)
    ] = None,
    *,
    server: TenantOptions,
    output: FormatOption = Format.JSON,
) -> None:
    """Write out what a group has yet to consume, a line of JSON each; without --ack it only looks:
    what others hold is shown too, and all of it stays.
    """
    api, path = server.connect(), path_of("topics", topic)
    api.get(path + path_of("groups", group))
    try:
        if ack:
            _take(api, path + path_of("groups", group), count, output, follow=follow)
        else:
            _look(api, path, group, count, output, follow=follow)
    except KeyboardInterrupt:
        say("stopped")
    except BrokenPipeError:
        # Who reads has gone; what is left in the buffer is not to be tried again at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise CommandError("nobody reads what is written any more") from None


def _take(api: Api, base: str, count: int | None, output: Format, *, follow: bool) -> None:
    """Lease, write out, ack; what could not be written is returned."""
    left = count
    while left is None or left > 0:
        asked = {"messages": PAGE if left is None else min(PAGE, left)}
        asked["wait_ms"] = WAIT_MS if follow else 0
        rows = api.post(base + "/receive", asked)["messages"]
        if not rows and not follow:
            return
        tokens = [row["token"] for row in rows]
        try:
            _write([{**row["message"], "attempt": row["attempt"]} for row in rows], output)
        except BaseException:
            api.post(base + "/settle", {"returns": tokens})
            raise
        lost = api.post(base + "/settle", {"acks": tokens})["lost"] if tokens else ()
        if lost:
            say(f"{len(lost)} leases ended before their messages were acked: these come again")
        left = None if left is None else left - len(rows)


def _look(
    api: Api, path: str, group: str, count: int | None, output: Format, *, follow: bool
) -> None:
    """Read the log of one queue after the other, again and again while it follows."""
    queues = [row["number"] for row in api.get(path)["queues"]]
    # A queue is asked by the group's place once, and by offset from then on.
    at: dict[int, int] = {}
    left = count
    while left is None or left > 0:
        for queue in queues:
            more = True
            while more and (left is None or left > 0):
                page = api.get(
                    path + "/messages",
                    queue=queue,
                    offset=at.get(queue),
                    group=None if queue in at else group,
                    limit=PAGE if left is None else min(PAGE, left),
                )
                rows = page["messages"]
                _write(rows, output)
                left = None if left is None else left - len(rows)
                if rows:
                    at[queue] = rows[-1]["offset"] + 1
                more = page["next"] is not None
        if not follow:
            return
        pause(LOOK_S)


def _write(rows: list[Facts], output: Format) -> None:
    if output is Format.JSON:
        for each in rows:
            put_line(json.dumps(each, ensure_ascii=False))
    elif rows:
        put({"messages": rows}, message_table(rows), output)
    sys.stdout.flush()


def message_table(rows: list[Facts]) -> Table:
    """Messages for people."""
    columns = ("uid", "queue", "offset", "writer", "bytes", "body")
    names = ("uid", "queue", "offset", "writer", "size_bytes")
    shown = [(*(text(row[name]) for name in names), _body_text(row)) for row in rows]
    return Table(columns, shown)


def _body_text(row: Facts) -> str:
    """A body in one cell: what cannot be printed is escaped, what is long is cut."""
    if "body" not in row:
        return "(binary)"
    body: str = row["body"]
    cut = body[:BODY_CHARACTERS] + ("..." if len(body) > BODY_CHARACTERS else "")
    return cut if cut.isprintable() else cut.encode("unicode_escape").decode()
