"""Figures of a topic from those of its queues."""

from __future__ import annotations

from collections.abc import Iterable

from .model import TopicStatistics


def summed(queues: Iterable[TopicStatistics]) -> TopicStatistics:
    """Figures of all queues together."""
    each = list(queues)
    oldest = [one.oldest_ms for one in each if one.oldest_ms is not None]
    return TopicStatistics(
        ready=sum(one.ready for one in each),
        leased=sum(one.leased for one in each),
        delayed=sum(one.delayed for one in each),
        oldest_ms=min(oldest, default=None),
        consumers=sum(one.consumers for one in each),
        filtered=sum(one.filtered for one in each),
        expired=sum(one.expired for one in each),
    )
