"""Topics that are deleted when nobody has used them for so long (`TopicOptions.unused_expiry_ms`).

Use is a consumer, a receive or a redeclaration. Times are monotonic; a restart counts as use, and
so does another leader of the topic's home or of one of its queues.
"""

from __future__ import annotations

from collections.abc import Callable

from ..api.model import TopicInfo
from ..common.ids import RaftGroup, TopicId, home_of


class UnusedTopics:
    """Last use of every topic that expires. Looked through once a second."""

    def __init__(self, has_consumers: Callable[[TopicInfo], bool]) -> None:
        self._has_consumers = has_consumers
        self._topics: dict[TopicId, TopicInfo] = {}
        self._used_ms: dict[TopicId, int] = {}

    def put(self, topic: TopicInfo, now_ms: int) -> None:
        """A topic was declared."""
        if topic.options.unused_expiry_ms is None:
            self.remove(topic)
            return
        self._topics[topic.id] = topic
        self._used_ms[topic.id] = now_ms

    def remove(self, topic: TopicInfo) -> None:
        """A topic is gone, or does not expire any more."""
        self._topics.pop(topic.id, None)
        self._used_ms.pop(topic.id, None)

    def used(self, topic: TopicId, now_ms: int) -> None:
        """Somebody received from a topic, or its last consumer has just gone."""
        if topic in self._used_ms:
            self._used_ms[topic] = now_ms

    def begin(self, group: RaftGroup, now_ms: int) -> None:
        """A group is led here from now on: what was used elsewhere is not known."""
        for ident, topic in self._topics.items():
            if home_of(ident) == group or any(ref.group == group for ref in topic.queues):
                self._used_ms[ident] = now_ms

    def has(self, topic: TopicId) -> bool:
        """Whether a topic is there, and expires."""
        return topic in self._topics

    def idle_ms(self, topic: TopicId, now_ms: int) -> int:
        """How long nobody has used a topic, as far as it is known here."""
        known = self._topics.get(topic)
        if known is None or self._has_consumers(known):
            return 0
        return now_ms - self._used_ms[topic]

    def expired(self, now_ms: int) -> list[TopicInfo]:
        """Topics whose time is up."""
        found: list[TopicInfo] = []
        for ident, topic in self._topics.items():
            if self._has_consumers(topic):
                self._used_ms[ident] = now_ms
            elif now_ms - self._used_ms[ident] >= (topic.options.unused_expiry_ms or 0):
                found.append(topic)
        return found
