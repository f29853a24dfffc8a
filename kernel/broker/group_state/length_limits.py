"""Queues that take no more than they may hold: those of limited topics which refuse what is new."""

from __future__ import annotations

from ...api.model import Overflow
from ...common.ids import QueueId
from .topic_state import TopicState


class Limits:
    """Those of one group, so that a publish to any other is asked nothing."""

    def __init__(self) -> None:
        self.topics: dict[QueueId, TopicState] = {}

    def watch(self, ident: QueueId, topic: TopicState) -> None:
        """A queue has come or its settings have changed."""
        options = topic.options
        limited = options.messages_max is not None or options.bytes_max is not None
        if limited and options.overflow is not Overflow.DROP_OLDEST:
            self.topics[ident] = topic
        else:
            self.topics.pop(ident, None)

    def forget(self, ident: QueueId) -> None:
        """A queue is gone."""
        self.topics.pop(ident, None)
