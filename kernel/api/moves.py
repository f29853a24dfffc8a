"""Tasks that move messages from one topic on to others: dead letters back to where they came from.

`changes.StartMove` begins one, `mover` runs it. A task takes the messages that were ready when it
began, some each second, and has the MOVE command put them into the outbox, which brings each to its
destination once (`store.dead_letters`), as traffic of the server's own that is never billed. What
somebody holds, or is delayed, stays.

    RUNNING -> COMPLETED   nothing is ready any more, or as many as at the start have gone
            -> CANCELLED   somebody said so; what was moved stays moved
            -> FAILED      `failure` says why; what is not moved stays where it is

A task is a metadata record `moves/TENANT/TOPIC/TASK`, written at its start and its end and at most
each second in between. After a restart a running task goes on from its record: messages that had
been moved since are not moved again, but not counted either.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from urllib.parse import quote

import msgspec

PREFIX = "moves/"

PER_SECOND_MAX = 500
"""Messages that a task moves a second, AWS's limit: consumers of the destination must bear it."""

RUNNING_MAX = 100
"""Tasks that run at once: each costs a commit of the metadata group a second."""

BACK_TO_MAX = 1_000
"""Topics that a task may bring messages back to, if not to any: the names travel with each step."""

KEPT_MAX = 10
"""Tasks remembered per topic: as many as a listing shows."""

OUTBOX_MAX = 2 * PER_SECOND_MAX
"""With so many items of the topic's Raft group in the outbox nothing is added: the way is slow."""


class MoveState(Enum):
    """How a task stands."""

    RUNNING = "running"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"


class MoveFailure(Enum):
    """Why a task has failed."""

    NO_ORIGIN = "no_origin"
    """A message never was a dead letter, or one of a topic that whoever asked may not write to: so
    there is nowhere to bring it back to."""
    NO_DESTINATION = "no_destination"
    """The topic to move to does not exist (any more)."""
    NO_SOURCE = "no_source"
    """The topic or group to move from was deleted."""


class MoveTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task, as its record tells it."""

    id: str
    tenant: str
    source: str
    group: str
    destination: str | None
    per_second: int | None
    """As asked for."""
    back_to: tuple[str, ...] | None = None
    """As asked for; older builds did not know of it."""
    state: MoveState = MoveState.RUNNING
    failure: MoveFailure | None = None
    to_move: int
    """Messages that were ready when it began."""
    moved: int = 0
    started_ms: int
    """Wall clock."""


def tasks(records: Mapping[str, tuple[int, bytes]], tenant: str, source: str) -> list[MoveTask]:
    """Tasks of a topic, the newest first, from `Client.records(PREFIX)`."""
    prefix = prefix_of(tenant, source)
    found = [decode_task(value) for key, (_, value) in records.items() if key.startswith(prefix)]
    return sorted(found, key=lambda each: (each.started_ms, each.id), reverse=True)


def decode_task(value: bytes) -> MoveTask:
    """A task from the value of its record."""
    return msgspec.msgpack.decode(value, type=MoveTask)


def prefix_of(tenant: str, source: str) -> str:
    """What the keys of a topic's tasks begin with."""
    return f"{PREFIX}{quote(tenant, safe='')}/{quote(source, safe='')}/"
