"""What a Raft group knows of a topic that was resized, beside its definition (ADR 31).

A queue of such a topic is in one of three conditions here: neither sealed nor a successor, as every
queue of any other topic; a successor; sealed, until it is gone. It may be both: then its own
successors wait for it, and it for its predecessors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from ...api.model import QueueRef
from ...common.errors import Code, KernelError
from ...common.ids import NUMBER_BITS, QueueId, TopicId, queue_id

RETIRED = KernelError(Code.NOT_LEADER, "the queue was sealed, and nobody needs it any more")
"""What a queue that is gone ends with, while its topic has others: whoever waits there has missed
nothing, and finds these as soon as it knows the definition. As if it were led elsewhere."""


@dataclass(slots=True)
class Successor:
    """A queue that has the keys of sealed ones."""

    predecessors: frozenset[int]
    """Numbers of those that are not gone."""
    drained: dict[str, frozenset[int]] = field(default_factory=dict)
    """Of each consumer group the predecessors that have nothing more for it: said by the log, and
    never taken back."""

    def waits_for(self, group: str) -> frozenset[int]:
        """The predecessors that may have something for a consumer group."""
        return self.predecessors - self.drained.get(group, frozenset())


@dataclass(frozen=True, slots=True)
class Planned:
    """A resize that is being carried out."""

    ring: bytes
    queues: tuple[QueueRef, ...]
    """The new ones."""
    once: bytes = b""
    """`TopicInfo.once`, if the topic gets that by it."""


@dataclass(slots=True)
class ResizedTopic:
    """One topic, in one Raft group."""

    offsets_from: int = 0
    """No queue of this topic that is gone has had an offset from here on, as far as this group
    knows: a number that is used again begins here at the lowest."""
    sealed: dict[int, int] = field(default_factory=dict)
    """Number of each sealed queue of this group to where it ends: all it has, or can have by its
    half messages, is below."""
    successors: dict[int, Successor] = field(default_factory=dict)
    """By number, those of this group."""
    predecessors: dict[int, frozenset[int]] = field(default_factory=dict)
    """By number, of every queue of the topic, wherever it is: those that are not gone of which it
    has keys, theirs included."""
    plan: Planned | None = None
    """In the home."""
    next_number: int = 0
    """Where to look for the numbers of new queues, round and round: one that is free is used again
    as late as can be, so that nobody knows of the queue any more that had it."""
    never_stored: int = 0
    """What the sum of its queues' tails has too much as a count of the messages stored: offsets
    below the first of each successor, less those of queues that are gone."""

    def queues_here(self, topic: TopicId, named: Iterable[QueueId]) -> list[QueueId]:
        """Ids of all queues: those that the definition names, and sealed ones that it has lost."""
        ids = list(named)
        known = {ident & NUMBER_BITS for ident in ids}
        return ids + [queue_id(topic, each) for each in sorted(self.sealed) if each not in known]

    def keep_predecessors(self, numbers: Collection[int]) -> None:
        """Nobody waits for queues that the topic has no more."""
        for each in self.successors.values():
            each.predecessors = each.predecessors.intersection(numbers)
        self.predecessors = {
            number: left
            for number, each in self.predecessors.items()
            if number in numbers and (left := each.intersection(numbers))
        }

    def forget_group(self, group: str) -> None:
        """A consumer group is gone: one of that name that comes waits for everything again."""
        for each in self.successors.values():
            each.drained.pop(group, None)
