"""Batches of messages on their way into the store, and where they go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ..common.errors import KernelError
from ..common.ids import Offset, QueueId, TopicId
from .tracing import ConnectedUser


class Destinations(Protocol):
    """Where messages of one (router, key) go: found once, cached by the adapter.

    Stale after `Client.topology_version` has changed: look it up again.
    """

    count: int
    """Number of topics that get a copy; 0: unroutable."""
    is_stored: bool
    """Whether a queue gets it: then the store counts it for the bill."""
    asks_leader: bool
    """Only the leader of its name knows: `PublishBatch.unlisted` tells."""

    @property
    def topic_ids(self) -> Sequence[TopicId]:
        """Of the topics that get a copy, but for those that only a leader knows."""


class PublishSink(Protocol):
    """Hears of batches. One object per connection, usually the connection's driver."""

    def published(self, batch: PublishBatch) -> None:
        """Every message of the batch is stored in every destination, but for `batch.failures`.

        Called once per batch, in the order of `submit` for batches to the same queue; between
        different Raft groups the order may differ.
        """


class PublishBatch(Protocol):
    """Messages of one connection, usually those that one socket read brought. Positions count
    the `add` calls from 0.
    """

    tag: object
    """Free for the adapter (for example the first confirm number and its channel)."""
    refuses_when_full: bool
    """Whether all its messages go to topics alone that refuse what they have no room for
    (`Overflow.REJECT`): who is above a limit may be told no instead of being held."""
    unlisted: list[int]
    """After completion: positions whose leader was asked, and has found no queue for them."""
    unheard: Mapping[int, int]
    """After completion: those of them that nobody gets, no live route either, and that are not
    retained; their bytes without the header."""

    @property
    def count(self) -> int:
        """Messages added."""

    @property
    def size_bytes(self) -> int:
        """Their bytes, headers included."""

    def by_topic(self) -> Mapping[TopicId, tuple[int, int]]:
        """Messages and bytes, without headers, for each topic that they are for: once all of them
        have been added, and before they are submitted. Copies count for each topic.
        """

    def place(self, position: int) -> tuple[QueueId, Offset] | None:
        """After completion: queue and offset of a message (of its first destination); None if it
        failed or went to something transient.
        """

    @property
    def duplicates(self) -> Mapping[int, bytes] | None:
        """After completion: position to the uid of the original, for messages that the topic's
        deduplication window has dropped; `place` then tells the original's.
        """

    @property
    def failures(self) -> Mapping[int, KernelError] | None:
        """After completion: position to error, None if all went well. A message to several topics
        fails if any of them refused it.
        """

    def comes_from(self, by: ConnectedUser | None) -> None:
        """What is added from here on is published by this connection: of a batch that several
        share. Otherwise its session says.
        """

    def add(self, to: Destinations, parts: Sequence[bytes], size: int, asks: object = None) -> None:
        """One message. `parts` joined are the slot (`api.message`: header, ext, native, body)
        and `size` is their length; `parts[0]` holds the whole header. The kernel joins them once.
        `to.count` must not be 0. A body above a topic's `message_bytes_max` or 16 MiB, or ext and
        native above 256 KiB, make it fail with TOO_LARGE.

        A topic with several queues takes the queue of the header's ordering-key hash, or the next
        one in turn.

        `asks`: a promise that the header asks for the same (flags, priority, times, key, tag) as
        that of the message before, if this came with the very same object: it is not looked at.
        """

    def add_alike(
        self,
        to: Destinations,
        heads: Sequence[bytes],
        bodies: Sequence[bytes],
        sizes: Sequence[int],
    ) -> None:
        """Messages to one place: columns of equal length, not empty. A message is head and body,
        `sizes` are the lengths of both together. Their headers differ in uid and lengths only: what
        the first one asks for (time, key, tag, flags) all do. Otherwise as `add`, a position each.
        """

    def once(self, number: int, sequence: int) -> None:
        """Store the batch at most once for a (subscriber number, sequence): a repeat within 15
        minutes completes as the first did. Sequences of a number rise, but for repeats. None of its
        messages has a deduplication id.
        """

    def uid(self) -> tuple[int, int]:
        """(high, low) for the header of the next message added: unique for ever, nearly free."""

    def uids(self, count: int) -> tuple[int, int]:
        """(high, low) of the first of so many: theirs are low, low + 1, and so on."""
