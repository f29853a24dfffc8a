"""`weir message`: looking at messages without touching them, and sending one."""

from __future__ import annotations

import base64
import sys
from typing import Annotated, Any

import typer

from gateway.commands.common.api import path_of, tenant_option
from gateway.commands.common.options import (
    FormatOption,
    TenantOptions,
    with_groups,
)
from gateway.commands.common.output import CommandError, ExitCode, Format, Table, put, say
from gateway.commands.common.values import milliseconds, pairs, put_one, text
from kernel.store.drivers.system import SystemClock

app = typer.Typer(help="Look at messages, send one.", no_args_is_help=True)

BODY_CHARACTERS = 60
"""Of a body in a table; the other forms have all of it."""

BODY_BYTES_MAX = 16 * 1024 * 1024

MESSAGES_DEFAULT = 10
MESSAGES_MAX = 1_000
"""Of a page; the admin API's own bound."""

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]


@app.command()
@with_groups
def peek(
    topic: TopicName,
    queue: Annotated[
        int | None, typer.Option("--queue", help="Only this queue; else all of them.", min=0)
    ] = None,
    from_queue: Annotated[
        int, typer.Option("--from-queue", help="Begin with this queue.", min=0)
    ] = 0,
    offset: Annotated[
        int, typer.Option("--offset", help="Begin at this offset of the first queue.", min=0)
    ] = 0,
    since: Annotated[
        str | None, typer.Option("--since", help="Only those stored within so long (10m, 2h).")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", help="Most messages.", min=1)
    ] = MESSAGES_DEFAULT,
    *,
    server: TenantOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show messages of a topic, whatever their state. Nothing is leased, nothing is counted."""
    path = path_of("topics", topic) + "/messages"
    since_ms = None if since is None else SystemClock().wall_ms() - milliseconds(since)
    page = server.connect().get(
        path,
        queue=queue,
        from_queue=from_queue,
        offset=offset,
        since_ms=since_ms,
        limit=min(limit, MESSAGES_MAX),
    )
    rows = [
        (
            row["uid"],
            text(row["queue"]),
            text(row["offset"]),
            row["writer"],
            text(row["size_bytes"]),
            _body_text(row),
        )
        for row in page["messages"]
    ]
    put(page, Table(("uid", "queue", "offset", "writer", "bytes", "body"), rows), output)
    if page["next"] is not None:
        at, begin = page["next"]
        again = f"--{'from-' * (queue is None)}queue {at} --offset {begin}"
        again += "" if since is None else f" --since {since}"
        again += "" if limit == MESSAGES_DEFAULT else f" --limit {limit}"
        say(f"there is more: weir message peek {topic} {again}{tenant_option(server.tenant)}")


@app.command()
@with_groups
def send(
    topic: TopicName,
    body: Annotated[
        str | None, typer.Argument(help="The body; without it, what comes on standard input.")
    ] = None,
    attributes: Annotated[
        list[str] | None,
        typer.Option("--attribute", metavar="NAME=VALUE", help="An attribute; may be repeated."),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="Ordering key.")] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Tag.")] = None,
    message_id: Annotated[str | None, typer.Option("--message-id", help="Your own id.")] = None,
    deduplication_id: Annotated[
        str | None, typer.Option("--deduplication-id", help="Dropped if seen in the window.")
    ] = None,
    priority: Annotated[int, typer.Option("--priority", min=0, max=255)] = 0,
    delay: Annotated[str | None, typer.Option("--delay", help="Delivered after (30s).")] = None,
    ttl: Annotated[str | None, typer.Option("--ttl", help="Expires after (5m).")] = None,
    *,
    server: TenantOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Send one message; says its id once it is on disk."""
    message: dict[str, Any] = {
        name: value
        for name, value in (
            ("ordering_key", key),
            ("tag", tag),
            ("message_id", message_id),
            ("deduplication_id", deduplication_id),
            ("delay_ms", None if delay is None else milliseconds(delay)),
            ("ttl_ms", None if ttl is None else milliseconds(ttl)),
        )
        if value is not None
    }
    message["priority"] = priority
    message["attributes"] = pairs(attributes, "--attribute")
    api = server.connect()
    if body is None:
        message["body_base64"] = base64.b64encode(_read_body()).decode()
    else:
        message["body"] = body
    sent = api.post(path_of("topics", topic) + "/messages", message)
    put_one(sent, sent["uid"], sent.items(), output)


def _read_body() -> bytes:
    body = sys.stdin.buffer.read(BODY_BYTES_MAX + 1)
    if len(body) > BODY_BYTES_MAX:
        message = f"standard input has more than {BODY_BYTES_MAX} bytes"
        raise CommandError(message, ExitCode.USAGE)
    return body


def _body_text(row: dict[str, Any]) -> str:
    """A body in one cell: what cannot be printed is escaped, what is long is cut."""
    if "body" not in row:
        return "(binary)"
    body: str = row["body"]
    cut = body[:BODY_CHARACTERS] + ("..." if len(body) > BODY_CHARACTERS else "")
    return cut if cut.isprintable() else cut.encode("unicode_escape").decode()
