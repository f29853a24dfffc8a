"""Commands by which a topic gets other queues (ADR 31): see `applying.resizes`."""

from __future__ import annotations

import msgspec

from ...api.model import GroupOptions, QueueRef, TopicOptions
from ...common.ids import Offset, QueueId, TopicId
from ..group_state.deduplication import Seen

SEALED = -2
"""Where a run to a sealed queue went: nowhere. Also the number of a half message."""

NOT_THERE = -1
"""Result of SEAL and RETIRE: there is no such queue here."""

NEEDED = -2
"""Result of RETIRE: the queue is not sealed, or not done with."""

STILL_NAMED = -3
"""Result of RETIRE: all are done with the queue, for ever, and the definition names it."""


class Plan(msgspec.Struct, frozen=True, array_like=True):
    """In the home of a topic: it is to have another ring and these queues beside those it has. It
    is carried out by RESIZE, whoever leads then. Result: None, or an error: IN_USE if another plan
    is being carried out.
    """

    topic: TopicId
    ring: bytes
    queues: tuple[QueueRef, ...]


class SpreadPlan(Plan, frozen=True, array_like=True):
    """The plan of the first resize by which a topic gets queues in other Raft groups."""

    once: bytes
    """As `TopicInfo.once` is then."""


class Seal(msgspec.Struct, frozen=True, array_like=True):
    """Have queues of a topic, of these numbers, take no new message; for ever. Result: of each
    where it ends, or NOT_THERE.
    """

    topic: TopicId
    queues: tuple[int, ...]


class NewQueue(msgspec.Struct, frozen=True, array_like=True):
    """A successor that is to be made."""

    number: int
    first: Offset
    """Its first offset: not below where any predecessor ends."""
    predecessors: tuple[int, ...]


class Resize(msgspec.Struct, frozen=True, array_like=True):
    """Give a topic other queues and a ring, and make those of the new ones that are of this group.
    Result: `TopicInfo`, or an error: IN_USE if a queue that is not gone has one of these numbers.
    """

    topic: TopicId
    version: int
    tenant: str
    name: str
    options: TopicOptions
    groups: dict[str, GroupOptions]
    queues: tuple[QueueRef, ...]
    """All it has, by rising number."""
    ring: bytes
    offsets_from: Offset
    """No queue that is gone has had an offset from here on."""
    successors: tuple[NewQueue, ...]


class SpreadResize(Resize, frozen=True, array_like=True):
    """RESIZE of a topic that was spread over other Raft groups."""

    once: bytes
    """As `TopicInfo.once` is then."""


class Drained(msgspec.Struct, frozen=True, array_like=True):
    """A predecessor has nothing more for a consumer group of a successor. Result: whether there is
    such a successor.
    """

    queue: QueueId
    group: str
    predecessor: int


class Retire(msgspec.Struct, frozen=True, array_like=True):
    """Remove a sealed queue that everybody is done with. Result: where it ended, NOT_THERE,
    NEEDED or STILL_NAMED.
    """

    queue: QueueId


class ReadWindow(msgspec.Struct, frozen=True, array_like=True):
    """A question: what a queue's window of deduplication knows of offsets from one on. A leader
    answers it without the log. Result: `WindowPart`.
    """

    queue: QueueId
    first: Offset
    rows_max: int


class WindowPart(msgspec.Struct, frozen=True, array_like=True):
    """Some of a queue's window of deduplication, in the order of its coming."""

    end: int
    """Where the queue ends; NOT_THERE: it is not sealed, as far as is known there, or not there."""
    left: int
    """Ids behind these."""
    rows: list[Seen]


class AddWindow(msgspec.Struct, frozen=True, array_like=True):
    """Ids that a queue of another Raft group has seen, which gets successors in this one. Result:
    the offset from which on more of its ids are wanted.
    """

    queue: QueueId
    rows: list[Seen]


ResizeControl = (
    Plan | SpreadPlan | Seal | Resize | SpreadResize | Drained | Retire | ReadWindow | AddWindow
)
