"""Room in limited topics: what is ready in them, and what this process has on its way there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from .broker.dispatcher import Dispatcher
from .ids import TopicId
from .model import DEFAULT_GROUP, Overflow, TopicInfo


class Rooms(Protocol):
    """What publishing asks before a message goes to a limited topic."""

    def take(self, topic: TopicInfo, size: int) -> bool:
        """Whether a topic takes one more message with a body of so many bytes."""

    def refused(self, topic: TopicInfo, parts: Sequence[bytes]) -> None:
        """A topic has no room for a message."""

    def arrived(self, promised: Mapping[TopicId, tuple[int, int]]) -> None:
        """What a batch took is counted by the state from now on, or never."""


class Room:
    """Keeps topics whose overflow policy refuses from taking more than they may hold."""

    def __init__(
        self,
        dispatcher: Callable[[TopicInfo, str, int], Dispatcher],
        dead_letter: Callable[[TopicInfo, bytes], None],
    ) -> None:
        self._dispatcher = dispatcher
        self._dead_letter = dead_letter
        self._promised: dict[TopicId, tuple[int, int]] = {}
        """(messages, bytes) taken by messages on their way."""

    def take(self, topic: TopicInfo, size: int) -> bool:
        """Whether a topic takes one more message with a body of so many bytes; its place is taken
        until `arrived`.
        """
        options = topic.options
        if options.overflow is Overflow.DROP_OLDEST:
            return True
        messages, taken = self._promised.get(topic.id, (0, 0))
        for number in range(len(topic.queues)):
            dispatcher = self._dispatcher(topic, DEFAULT_GROUP, number)
            messages += dispatcher.ready_count
            if options.bytes_max is not None:
                dispatcher.ready.measure()
                taken += dispatcher.ready.bytes
        if options.messages_max is not None and messages >= options.messages_max:
            return False
        if options.bytes_max is not None and taken + size > options.bytes_max:
            return False
        self._promise(topic.id, 1, size)
        return True

    def refused(self, topic: TopicInfo, parts: Sequence[bytes]) -> None:
        """A topic has no room for a message; its policy may want it dead-lettered."""
        if topic.options.overflow is Overflow.REJECT_DEAD_LETTER:
            self._dead_letter(topic, b"".join(parts))

    def arrived(self, promised: Mapping[TopicId, tuple[int, int]]) -> None:
        """The state counts from now on what a batch took, or it never will."""
        for ident, (messages, size) in promised.items():
            self._promise(ident, -messages, -size)

    def _promise(self, topic: TopicId, messages: int, size: int) -> None:
        known = self._promised.get(topic, (0, 0))
        left = known[0] + messages, known[1] + size
        if left[0] > 0:
            self._promised[topic] = left
        else:
            self._promised.pop(topic, None)
