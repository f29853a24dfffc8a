"""`weir message`: looking at messages, sending them, and what else is done to them by hand."""

from __future__ import annotations

import base64
import sys
from typing import Annotated, Any

import typer

from gateway.commands.admin.consume import consume, message_table
from gateway.commands.admin.dead_letters import Rate, Wait, run_move
from gateway.commands.admin.trace import trace
from gateway.commands.common.api import path_of, tenant_option
from gateway.commands.common.options import (
    FormatOption,
    TenantOptions,
    YesOption,
    with_groups,
)
from gateway.commands.common.output import CommandError, ExitCode, Format, Table, put, say
from gateway.commands.common.values import confirm, milliseconds, pairs, put_one
from kernel.store.drivers.system import SystemClock

app = typer.Typer(help="Look at messages, send, consume, move and drop them.", no_args_is_help=True)

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
    put(page, message_table(page["messages"]), output)
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


app.command("consume")(consume)
app.command("trace")(trace)


@app.command()
@with_groups
def move(
    source: Annotated[str, typer.Option("--from", metavar="TOPIC", help="Where they are.")],
    to: Annotated[str, typer.Option("--to", metavar="TOPIC", help="Where they are to be.")],
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
    """Move what is ready in a group to another topic, each as a new message, each once."""
    asked = {"to": to, "group": group, "limit": limit, "per_second": rate}
    run_move(server.connect(), source, asked, output, wait=wait)


@app.command()
@with_groups
def purge(
    topic: TopicName,
    older: Annotated[
        str, typer.Option("--older", metavar="DURATION", help="Stored so long ago (36h, 7d).")
    ],
    group: Annotated[str, typer.Option("--group", help="Whose messages.")] = "default",
    yes: YesOption = False,
    *,
    server: TenantOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Drop what a group has not consumed and was stored long ago; what consumers hold stays."""
    older_ms = milliseconds(older)
    api = server.connect()
    confirm(f"Dropping what {topic} has for group {group} from before {older} ago", topic, yes=yes)
    body = {"group": group, "older_ms": older_ms}
    purged = api.post(path_of("topics", topic) + "/purge", body)
    answer = {"name": topic, "messages": purged["messages"]}
    put(answer, Table(("purged", "messages"), [(topic, str(purged["messages"]))]), output)


def _read_body() -> bytes:
    body = sys.stdin.buffer.read(BODY_BYTES_MAX + 1)
    if len(body) > BODY_BYTES_MAX:
        message = f"standard input has more than {BODY_BYTES_MAX} bytes"
        raise CommandError(message, ExitCode.USAGE)
    return body
