"""`weir message trace`: where a message lies, and what has become of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from gateway.commands.common.api import path_of
from gateway.commands.common.options import FormatOption, TenantOptions, with_groups
from gateway.commands.common.output import CommandError, ExitCode, Format, Table, put
from gateway.commands.common.values import milliseconds
from kernel.store.drivers.system import SystemClock

if TYPE_CHECKING:
    from gateway.commands.common.api import Api, Facts

MOST_DEFAULT = 1_000_000
PAGE = 50_000

EVENTS_MAX = 10_000
"""A message that came back so often is looked after otherwise."""

SLACK_MS = 600_000
"""By which the clock of a publisher's gateway may be ahead of the log's."""


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

    Of a topic that is traced (`weir topic trace`) also what has become of it since it was stored,
    by its uid even if it is gone, as far as that was written down.
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
    history = _history(api, topic, found[0]["message"] if found else message, since_ms)
    if not found and not history:
        where = f"among {looked_at} messages of {topic}"
        rest = "; there are more: --since or --most" if more else ", which are all it keeps"
        raise CommandError(f"no message {message} {where}{rest}", ExitCode.NOT_FOUND)
    put({"found": found, "history": history}, _table(found, history), output)


def _history(api: Api, topic: str, message: Facts | str, since_ms: int | None) -> list[Facts]:
    """What was written down of a message, that was found or of which only its id is known."""
    query: Facts = {"since_ms": since_ms}
    if isinstance(message, str):
        try:
            uid = str(UUID(message))
        except ValueError:
            return []  # the id that its publisher gave it: no trace has that
    else:
        uid = message["uid"]
        query = {
            "since_ms": max(0, message["published_ms"] - SLACK_MS),
            "queue": message["queue"],
            "at": message["offset"],
        }
    found: list[Facts] = []
    offset: int | None = 0
    while offset is not None and len(found) < EVENTS_MAX:
        page = api.get(path_of("topics", topic, "history", uid), offset=offset, **query)
        found += page["events"]
        offset = page["next"]
        if page["place"] is not None:
            query["queue"], query["at"] = page["place"]
        query["since_ms"] = None
    # Each process writes its own: in the order of time they tell a story.
    return sorted(found, key=lambda each: int(each["time_ms"]))


def _table(found: list[Facts], history: list[Facts]) -> Table:
    rows = []
    for each in found:
        own = each["message"]
        place = f"queue {own['queue']}, offset {own['offset']}"
        what = f"{own['size_bytes']} bytes, published {_time(own['published_ms'])}"
        rows.append((place, f"{what} by {own['writer']}"))
        deaths = own.get("dead_letters", [])
        rows += [(place, f"came as a dead letter: {death}") for death in deaths]
        rows += [(f"group {group['group']}", _standing(group)) for group in each["groups"]]
    rows += [(_time(each["time_ms"]), _event(each)) for each in history]
    return Table(("where", "what"), rows)


def _event(event: Facts) -> str:
    what = event["what"].replace("_", " ")
    if event["group"] is None:
        where = f"at queue {event['queue']}, offset {event['offset']}"
    else:
        where = f"for group {event['group']}"
    words = [f"{what} {where} by {_by(event)}"]
    if event["reason"] is not None:
        words.append(event["reason"])
    if event.get("uid") is not None:
        words.append(f"as {event['uid']}")
    if event["until_ms"] is not None:
        words.append(f"until {_time(event['until_ms'])}")
    words.append(f"noted by {event['process']}")
    return ", ".join(words)


def _by(event: Facts) -> str:
    """Who it was, as far as that is known: of what a leader notes, the protocol."""
    who = event.get("by")
    if who is None:
        return str(event["protocol"])
    words = [f"{who['user']} of {who['tenant']} over {who['protocol']}"]
    if who["address"] is not None:
        words.append(f"from {who['address']}")
    if who["connection"] is not None:
        words.append(f"(connection {who['connection']})")
    return " ".join(words)


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
