"""`weir group`: consumer groups of topics, their backlog and their settings."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from gateway.commands.common.api import path_of
from gateway.commands.common.options import FormatOption, TenantOptions, YesOption, with_groups
from gateway.commands.common.output import CommandError, ExitCode, Format, Table, put
from gateway.commands.common.values import (
    CHANGED,
    CREATED,
    NONE,
    confirm,
    duration_text,
    milliseconds,
    number_or_none,
    put_one,
    text,
)
from kernel.store.drivers.system import SystemClock

app = typer.Typer(help="Consumer groups of topics.", no_args_is_help=True)


class StartChoice(StrEnum):
    """Where a new group begins."""

    EARLIEST = "earliest"
    LATEST = "latest"


TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")]
Ordered = Annotated[
    bool | None,
    typer.Option("--ordered/--unordered", help="One message of an ordering key at a time."),
]
Attempts = Annotated[
    str | None, typer.Option("--attempts", help="Deliveries before a dead letter, or none.")
]
DeadLetterTo = Annotated[
    str | None,
    typer.Option("--dead-letter", help="Topic for dead letters, router:NAME[:KEY], or none."),
]
Lease = Annotated[str | None, typer.Option("--lease", help="How long a lease lasts (30s).")]
InFlight = Annotated[int | None, typer.Option("--in-flight", help="Most leased messages.")]
SingleActive = Annotated[
    bool | None,
    typer.Option("--single-active/--all-active", help="One consumer at a time gets messages."),
]


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """What can be set on a group, as options; None: not named."""

    ordered: Ordered = None
    attempts: Attempts = None
    dead_letter: DeadLetterTo = None
    lease: Lease = None
    in_flight: InFlight = None
    single_active: SingleActive = None

    def fields(self) -> dict[str, Any]:
        """The settings that were given, as the API names them."""
        fields: dict[str, Any] = {
            name: value
            for name, value in (
                ("ordered", self.ordered),
                ("in_flight_max", self.in_flight),
                ("single_active_consumer", self.single_active),
            )
            if value is not None
        }
        if self.attempts is not None:
            fields["attempts_max"] = number_or_none(self.attempts)
        if self.dead_letter is not None:
            fields["dead_letter"] = _target(self.dead_letter)
        if self.lease is not None:
            fields["lease_ms"] = milliseconds(self.lease)
        return fields


@app.command("ls")
@with_groups
def list_groups(
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="Only its.")] = None,
    *,
    server: TenantOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """List groups with their backlog."""
    rows, _ = server.connect().pages("groups", topic=topic)
    columns = (
        "group",
        "topic",
        "ready",
        "leased",
        "delayed",
        "expired",
        "oldest",
        "consumers",
    )
    shown = [
        (
            row["name"],
            row["topic"],
            text(row["ready"]),
            text(row["leased"]),
            text(row["delayed"]),
            text(row["expired"]),
            duration_text(row["oldest_age_ms"]),
            text(row["consumers"]),
        )
        for row in rows
    ]
    put({"groups": rows}, Table(columns, shown), output)


@app.command("info")
@with_groups
def show_group(
    topic: TopicName,
    group: GroupName,
    *,
    server: TenantOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show one with its figures and settings."""
    _show(server.connect().get(path_of("topics", topic, "groups", group)), output)


@app.command("create")
@with_groups
def create_group(
    topic: TopicName,
    group: GroupName,
    start: Annotated[
        StartChoice | None,
        typer.Option("--start", help="Where it begins; with what is there unless told otherwise."),
    ] = None,
    *,
    settings: GroupSettings,
    server: TenantOptions,
    output: FormatOption = Format.SUMMARY,
) -> None:
    """Create a group on a topic."""
    body = settings.fields()
    body["name"] = group
    if start is not None:
        body["start"] = start.value
    made = server.connect().post(path_of("topics", topic) + "/groups", body)
    _show(made, output, CREATED)


@app.command("set")
@with_groups
def set_group(
    topic: TopicName,
    group: GroupName,
    *,
    settings: GroupSettings,
    server: TenantOptions,
    output: FormatOption = Format.SUMMARY,
) -> None:
    """Change settings; what is not named stays."""
    body = settings.fields()
    changed = server.connect().patch(path_of("topics", topic, "groups", group), body)
    _show(changed, output, CHANGED)


@app.command("rm")
@with_groups
def remove_group(
    topic: TopicName,
    group: GroupName,
    yes: YesOption = False,
    *,
    server: TenantOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Remove a group; what it alone still held is let go."""
    api = server.connect()
    confirm(f"Removing group {group} of {topic}", group, yes=yes)
    api.delete(path_of("topics", topic, "groups", group))
    put({"name": group, "topic": topic}, Table(("removed", "topic"), [(group, topic)]), output)


@app.command("seek")
@with_groups
def seek_group(
    topic: TopicName,
    group: GroupName,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="earliest|latest|TIME|OFFSET",
            help="TIME: so long ago (2h), or 2026-11-23T10:00 (UTC unless it says otherwise). "
            "OFFSET: of one queue.",
        ),
    ],
    queue: Annotated[
        int | None, typer.Option("--queue", help="Only this queue; else all of them.", min=0)
    ] = None,
    yes: YesOption = False,
    *,
    server: TenantOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Have a group of a stream go on from elsewhere: what it had consumed comes again, or what it
    skips never does. Nobody may use it meanwhile.
    """
    place = _place(to)
    api = server.connect()
    confirm(f"Having group {group} of {topic} go on from elsewhere", group, yes=yes)
    sought = api.post(
        path_of("topics", topic, "groups", group) + "/seek", {**place, "queue": queue}
    )
    rows = [(text(row["queue"]), text(row["offset"])) for row in sought["queues"]]
    put(sought, Table(("queue", "offset"), rows), output)


def _place(to: str) -> dict[str, object]:
    """Where a group is to go on, as the API has it. Raises CommandError (usage)."""
    if to in {"earliest", "latest"}:
        return {"to": to}
    if to.isascii() and to.isdigit() and len(to) <= 15:
        return {"offset": int(to)}
    try:
        when = datetime.fromisoformat(to)
    except ValueError:
        return {"time_ms": SystemClock().wall_ms() - milliseconds(to)}
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return {"time_ms": int(when.timestamp() * 1_000)}


def _target(given: str) -> dict[str, str | None] | None:
    """Where dead letters go: `TOPIC`, `router:NAME` (by the message's own key) or
    `router:NAME:KEY`; None for `none`.
    """
    if given == NONE:
        return None
    if not given:
        raise CommandError("--dead-letter needs a topic, or none", ExitCode.USAGE)
    if not given.startswith("router:"):
        return {"router": None, "key": given}
    name, _, key = given.removeprefix("router:").partition(":")
    return {"router": name, "key": key or None}


def _show(group: dict[str, Any], output: Format, done: str = "") -> None:
    options = group["options"]
    target = options["dead_letter"]
    shown_target = None
    if target is not None:
        shown_target = (
            target["key"]
            if target["router"] is None
            else f"router:{target['router']}:{target['key'] or ''}".rstrip(":")
        )
    rows: list[tuple[str, object]] = [
        ("name", group["name"]),
        ("topic", group["topic"]),
        *((name, group[name]) for name in ("ready", "leased", "delayed", "expired", "consumers")),
        ("oldest", duration_text(group["oldest_age_ms"])),
        ("start", options["start"]),
        ("ordered", options["ordered"]),
        ("attempts", options["attempts_max"]),
        ("dead letter", shown_target),
        ("lease", duration_text(options["lease_ms"])),
        ("in flight", options["in_flight_max"]),
        ("single active", options["single_active_consumer"]),
    ]
    begins = f", from the {'first' if options['start'] == 'earliest' else 'next'} message on"
    facts = ["ordered" if options["ordered"] else "unordered"]
    if options["attempts_max"] is not None:
        facts.append(f"{options['attempts_max']} attempts")
    if shown_target is not None:
        facts.append(f"dead letters to {shown_target}")
    summary = f"{done} group {group['name']} of {group['topic']}{begins if done == CREATED else ''}"
    put_one(group, group["name"], rows, output, f"{summary}: {', '.join(facts)}")
