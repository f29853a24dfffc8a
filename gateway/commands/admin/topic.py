"""`weir topic` and `weir queue`: topics of every kind, and those that SQS and AMQP call queues."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.commands.common.api import path_of
from gateway.commands.common.options import (
    FormatOption,
    PrefixOption,
    TenantOptions,
    YesOption,
    with_groups,
)
from gateway.commands.common.output import CommandError, ExitCode, Format, Table, put
from gateway.commands.common.values import (
    CHANGED,
    CREATED,
    RESIZED,
    confirm,
    duration_text,
    milliseconds_or_none,
    number_or_none,
    put_one,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Callable

topics = typer.Typer(help="Topics: streams, and the queues of SQS and AMQP.", no_args_is_help=True)
queues = typer.Typer(
    help="Work topics: what SQS and AMQP call queues. A message goes when it is acked.",
    no_args_is_help=True,
)

WORK = "work"


class OnOff(StrEnum):
    """A switch."""

    ON = "on"
    OFF = "off"


class OverflowChoice(StrEnum):
    """What a full topic does with one more message."""

    DROP_OLDEST = "drop_oldest"
    REJECT = "reject"


class TraceChoice(StrEnum):
    """Which messages of a topic are traced."""

    OFF = "off"
    SAMPLE = "sample"
    ALL = "all"


class AboveChoice(StrEnum):
    """What becomes of publishers above the largest size."""

    SERVE = "serve"
    WAIT = "wait"
    FAIL = "fail"


Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the topic.")]
Queues = Annotated[int | None, typer.Option("--queues", help="Number of queues (1 to 256).")]
Ttl = Annotated[
    str | None, typer.Option("--ttl", help="Messages expire after so long (30s, 5m), or none.")
]
Retention = Annotated[
    str | None,
    typer.Option("--retention", help="Messages are kept so long (72h, 7d), or none."),
]
MaxMessages = Annotated[
    str | None, typer.Option("--max-messages", help="Most ready messages, or none.")
]
MaxBytes = Annotated[
    int | None, typer.Option("--max-message-bytes", help="Size of the largest message.")
]
OverflowOption = Annotated[
    OverflowChoice | None, typer.Option("--overflow", help="What a full topic does.")
]
Deduplication = Annotated[
    str | None, typer.Option("--deduplication", help="Window for deduplication ids, or none.")
]
Expiry = Annotated[
    str | None, typer.Option("--unused-expiry", help="Deleted if unused for so long, or none.")
]
TreeOption = Annotated[
    OnOff | None,
    typer.Option(
        "--tree",
        help="Part of the topic tree, MQTT's names: what is published to NAME or NAME/... there is "
        "stored here too. On unless told.",
    ),
]


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """What can be set on a topic of either kind, as options; None: not named."""

    ttl: Ttl = None
    retention: Retention = None
    max_messages: MaxMessages = None
    max_message_bytes: MaxBytes = None
    overflow: OverflowOption = None
    deduplication: Deduplication = None
    unused_expiry: Expiry = None
    tree: TreeOption = None

    def fields(self) -> dict[str, Any]:
        """The settings that were given, as the API names them."""
        fields: dict[str, Any] = {
            name: milliseconds_or_none(given)
            for name, given in (
                ("message_ttl_ms", self.ttl),
                ("retention_ms", self.retention),
                ("deduplication_ms", self.deduplication),
                ("unused_expiry_ms", self.unused_expiry),
            )
            if given is not None
        }
        if self.tree is not None:
            fields["tree"] = self.tree is OnOff.ON
        if self.max_messages is not None:
            fields["messages_max"] = number_or_none(self.max_messages)
        if self.max_message_bytes is not None:
            fields["message_bytes_max"] = self.max_message_bytes
        if self.overflow is not None:
            fields["overflow"] = self.overflow.value
        return fields


@with_groups
def list_topics(
    context: typer.Context,
    prefix: PrefixOption = "",
    limit: Annotated[int, typer.Option("--limit", help="Most rows.", min=1)] = 1000,
    *,
    server: TenantOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """List them by name, with their backlog."""
    kind = WORK if _is_queue(context) else None
    rows, after = server.connect().pages("topics", limit, prefix=prefix, type=kind)
    columns = ("name", "type", "queues", "groups", "ready", "leased", "size")
    shown = [
        (*(text(row[column]) for column in columns[:-1]), _size_shown(row["size"])) for row in rows
    ]
    put({"topics": rows, "next": after}, Table(columns, shown), output)


@with_groups
def show_topic(name: Name, *, server: TenantOptions, output: FormatOption = Format.TABLE) -> None:
    """Show one with its settings, queues, groups and figures."""
    _show(server.connect().get(path_of("topics", name)), output)


@with_groups
def create_topic(
    name: Name,
    kind: Annotated[
        str,
        typer.Option(
            "--type",
            help="What clients may send, if their protocol has types of topics. RocketMQ's: "
            "normal, fifo, delay, transaction, priority.",
        ),
    ] = "normal",
    queue_count: Queues = None,
    *,
    settings: TopicSettings,
    server: TenantOptions,
    output: FormatOption = Format.SUMMARY,
) -> None:
    """Create a stream: kept for 72 hours unless told otherwise, read by named groups."""
    queues = _queue_count(queue_count)
    body = {"name": name, "type": kind, **queues, **settings.fields()}
    _show(server.connect().post("/topics", body), output, CREATED)


@with_groups
def create_queue(
    name: Name,
    queue_count: Queues = None,
    priority_max: Annotated[
        int | None, typer.Option("--max-priority", help="Highest priority (0 to 255).")
    ] = None,
    *,
    settings: TopicSettings,
    server: TenantOptions,
    output: FormatOption = Format.SUMMARY,
) -> None:
    """Create a work topic with the group `default`, which SQS and AMQP consume."""
    body = {"name": name, "type": WORK, **_queue_count(queue_count), **settings.fields()}
    if priority_max is not None:
        body["priority_max"] = priority_max
    _show(server.connect().post("/topics", body), output, CREATED)


@with_groups
def set_topic(
    name: Name,
    *,
    settings: TopicSettings,
    server: TenantOptions,
    output: FormatOption = Format.SUMMARY,
) -> None:
    """Change settings; what is not named stays."""
    fields = settings.fields()
    if not fields:
        raise CommandError("nothing to change: name a setting", ExitCode.USAGE)
    _show(server.connect().patch(path_of("topics", name), fields), output, CHANGED)


@with_groups
def remove_topic(
    name: Name,
    yes: YesOption = False,
    if_empty: Annotated[
        bool, typer.Option("--if-empty", help="Only if no message is ready.")
    ] = False,
    if_unused: Annotated[
        bool, typer.Option("--if-unused", help="Only if nobody consumes.")
    ] = False,
    *,
    server: TenantOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Delete it with its messages, groups and the routes to it."""
    api = server.connect()
    confirm(f"Deleting {name} and its messages", name, yes=yes)
    path = path_of("topics", name)
    deleted = api.delete(path, if_empty=if_empty, if_unused=if_unused)
    answer = {"name": name, "messages": deleted["messages"]}
    put(answer, Table(("deleted", "messages"), [(name, str(deleted["messages"]))]), output)


@with_groups
def purge_topic(
    name: Name,
    group: Annotated[str, typer.Option("--group", help="Whose messages.")] = "default",
    in_flight: Annotated[
        bool, typer.Option("--in-flight", help="Also those that consumers hold.")
    ] = False,
    yes: YesOption = False,
    *,
    server: TenantOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Drop what a group has not consumed yet."""
    api = server.connect()
    confirm(f"Dropping the messages of {name} for group {group}", name, yes=yes)
    body = {"group": group, "in_flight": in_flight}
    purged = api.post(path_of("topics", name) + "/purge", body)
    answer = {"name": name, "messages": purged["messages"]}
    put(answer, Table(("purged", "messages"), [(name, str(purged["messages"]))]), output)


@with_groups
def resize_topic(
    name: Name,
    queue_count: Annotated[
        int | None, typer.Option("--queues", help="How many queues take messages then (1 to 256).")
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            "--size",
            help="Instead: as many as that takes. small, medium, large, or what is published a "
            "second: messages=20000,bytes=5000000 (one of them, or both).",
        ),
    ] = None,
    by_key: Annotated[
        bool,
        typer.Option(
            "--by-key",
            help="Its messages need no order but that of their keys: asked for where it has had "
            "one queue.",
        ),
    ] = False,
    spread: Annotated[
        bool,
        typer.Option(
            "--spread",
            help="Have them in all Raft groups, evenly, whichever it has been in: also moves what "
            "it has.",
        ),
    ] = False,
    *,
    server: TenantOptions,
    output: FormatOption = Format.SUMMARY,
) -> None:
    """Have more queues, or fewer, while it is used. Old ones are sealed, and go once consumed."""
    if (queue_count is None) == (size is None):
        raise CommandError("say either --queues or --size", ExitCode.USAGE)
    body: dict[str, Any] = {"by_key": by_key, "spread": spread}
    if size is None:
        body["queues"] = queue_count
    else:
        body["size"] = _size(size) if "=" in size else size
    _show(server.connect().post(path_of("topics", name) + "/resize", body), output, RESIZED)


@with_groups
def size_topic(
    name: Name,
    least: Annotated[
        str | None, typer.Option("--min", help="The smallest size: as --size of `resize`.")
    ] = None,
    most: Annotated[str | None, typer.Option("--max", help="The largest one.")] = None,
    fixed: Annotated[
        str | None, typer.Option("--size", help="Instead: the one that it keeps.")
    ] = None,
    above: Annotated[
        AboveChoice,
        typer.Option(
            "--above",
            help="Above the largest size publishers are served as far as the stores can, or "
            "delayed as by a limit (wait), or refused at once (fail).",
        ),
    ] = AboveChoice.SERVE,
    by_key: Annotated[
        bool, typer.Option("--by-key", help="Its messages need no order but that of their keys.")
    ] = False,
    spread: Annotated[
        bool, typer.Option("--spread", help="Have its queues in all Raft groups, evenly.")
    ] = False,
    off: Annotated[bool, typer.Option("--off", help="Have it keep the queues it has.")] = False,
    *,
    server: TenantOptions,
    output: FormatOption = Format.SUMMARY,
) -> None:
    """Have it grow and shrink by itself as it is used, from one size to another, or keep one."""
    if fixed is not None and least is None and most is None:
        least = most = fixed
    elif fixed is not None:
        raise CommandError("say --min and --max, or --size", ExitCode.USAGE)
    if off != (least is None and most is None) or (least is None) != (most is None):
        raise CommandError("say --min and --max, or --size, or --off", ExitCode.USAGE)
    api, path = server.connect(), path_of("topics", name) + "/size"
    if least is None or most is None:
        api.delete(path)
        _show(api.get(path_of("topics", name)), output, RESIZED)
        return
    sizes = {key: _size(s) if "=" in s else s for key, s in (("min", least), ("max", most))}
    body = {**sizes, "by_key": by_key, "spread": spread, "above": above.value}
    _show(api.put(path, body), output, RESIZED)


@with_groups
def trace_topic(
    name: Name,
    mode: Annotated[
        TraceChoice, typer.Argument(help="Of no message, of one in 100, or of all of them.")
    ],
    *,
    server: TenantOptions,
    output: FormatOption = Format.SUMMARY,
) -> None:
    """Have what becomes of its messages written down, for `weir message trace`."""
    api, path = server.connect(), path_of("topics", name)
    api.put(path + "/trace", {"mode": mode.value})
    _show(api.get(path), output, CHANGED)


def _size_shown(size: dict[str, Any] | None) -> str:
    """From which size to which, a second, and what its queues are meant for now."""
    if size is None:
        return text(None)
    least, most, now = (_figures(size[each]) for each in ("min", "max", "now"))
    return least if least == most else f"{now} of {least} to {most}"


def _figures(figures: dict[str, float]) -> str:
    return ",".join(f"{name}={figure:.0f}" for name, figure in figures.items() if figure)


def _size(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for each in text.split(","):
        name, _, figure = each.partition("=")
        try:
            found[name.strip()] = float(figure)
        except ValueError:
            message = f"{each!r} is not a figure: messages=20000,bytes=5000000"
            raise CommandError(message, ExitCode.USAGE) from None
    return found


_SHARED: dict[str, Callable[..., None]] = {
    "ls": list_topics,
    "info": show_topic,
    "set": set_topic,
    "rm": remove_topic,
    "purge": purge_topic,
    "resize": resize_topic,
    "size": size_topic,
    "trace": trace_topic,
}
for _verb, _function in _SHARED.items():
    topics.command(_verb)(_function)
    queues.command(_verb)(_function)
topics.command("create")(create_topic)
queues.command("create")(create_queue)


def _is_queue(context: typer.Context) -> bool:
    return context.parent is not None and context.parent.info_name == "queue"


def _queue_count(count: int | None) -> dict[str, Any]:
    return {} if count is None else {"queues": count}


def _half(bounds: dict[str, int]) -> str:
    """What becomes of transactional messages that nobody decides on, and how many there may be."""
    first, again = bounds["check_after_ms"], bounds["check_interval_ms"]
    return (
        f"asked about after {duration_text(first)}, then each {duration_text(again)}, "
        f"{bounds['checks_max']} times; at most {bounds['messages_max']} and "
        f"{bounds['bytes_max']} bytes"
    )


def _summary(topic: dict[str, Any], done: str) -> str:
    """One line: what it is, what is set, who can use it."""
    options = topic["options"]
    count = sum(not (each["sealed"] or each["once"]) for each in topic["queues"])
    facts = [topic["type"], f"{count} queue" if count == 1 else f"{count} queues"]
    for name, said in (("retention_ms", "kept for"), ("message_ttl_ms", "expires after")):
        if options[name] is not None:
            facts.append(f"{said} {duration_text(options[name])}")
    if options["messages_max"] is not None:
        facts.append(f"at most {options['messages_max']} ready")
    line = f"{done} {topic['name']}: {', '.join(facts)}"
    if topic["unspelled_by"]:
        line += f" (no client of {' or '.join(topic['unspelled_by'])} can spell this name)"
    return line


def _show(topic: dict[str, Any], output: Format, done: str = "") -> None:
    rows: list[tuple[str, object]] = [("name", topic["name"]), ("type", topic["type"])]
    for name, value in topic["options"].items():
        if name == "half":
            rows.append((name, _half(value)))
        elif name.endswith("_ms"):
            rows.append((name.removesuffix("_ms"), duration_text(value)))
        else:
            rows.append((name, value))
    if topic["trace"] != TraceChoice.OFF:
        rows.append(("trace", topic["trace"]))
    if topic["size"] is not None:
        rows.append(("size", _size_shown(topic["size"])))
        rows.append(("above", topic["size"]["above"]))
    for queue in topic["queues"]:
        span = f"offsets {queue['first_offset']} to {queue['next_offset']}"
        kind = ", sealed: goes once it is consumed" if queue["sealed"] else ""
        if queue["once"]:
            kind = ", for what is published exactly once"
        place = f"{span}, raft group {queue['raft_group']}{kind}"
        rows.append((f"queue {queue['number']}", place))
    for group in topic["groups"]:
        oldest = duration_text(group["oldest_age_ms"])
        figures = f"ready {group['ready']}, leased {group['leased']}, delayed {group['delayed']}"
        figures += f", expired {group['expired']}, oldest {oldest}, consumers {group['consumers']}"
        rows.append((f"group {group['name']}", figures))
    put_one(topic, topic["name"], rows, output, _summary(topic, done))
