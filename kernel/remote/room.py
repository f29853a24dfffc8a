"""Room in limited topics, as a process without a store sees it.

What is volatile lives here, and so does the count of it; of the others the leader of the queue
knows what is there, and refuses what has no room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ids import VOLATILE_GROUP, TopicId
from ..model import TopicInfo
from ..topic_room import Rooms


class GatewayRooms:
    """`topic_room.Rooms`."""

    def __init__(self, volatile: Rooms) -> None:
        self._volatile = volatile

    def take(self, topic: TopicInfo, size: int) -> bool:
        """Whether a topic takes one more message, as far as it can be told here."""
        if topic.queues[0].group != VOLATILE_GROUP:
            return True
        return self._volatile.take(topic, size)

    def refused(self, topic: TopicInfo, parts: Sequence[bytes]) -> None:
        """A topic of this process has no room for a message."""
        self._volatile.refused(topic, parts)

    def arrived(self, promised: Mapping[TopicId, tuple[int, int]]) -> None:
        """What a batch took is counted by the state from now on, or never."""
        self._volatile.arrived(promised)
