"""The families of figures by topic, queue, group and tenant: which metrics, and their values.

A family's series have the same labels; `GET /metrics/detailed?family=NAME` names one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.admin.metrics.series_text import (
    Column,
    Kind,
    MetricHead,
    Series,
    columns_of,
    escaped,
)
from kernel.api.model import Reason
from kernel.broker.delivery.group_counts import WAIT_BOUNDS_MS

if TYPE_CHECKING:
    from gateway.admin.metrics.tenant_totals import TenantTotals
    from kernel.api.model import TopicInfo
    from kernel.store.topic_figures import TopicFigures

_REASONS: Final = (
    Reason.ATTEMPTS,
    Reason.EXPIRED,
    Reason.REJECTED,
    Reason.OVERFLOW,
    Reason.TOO_LARGE,
)


def topic_labels(topic: TopicInfo) -> str:
    """The labels of a topic's series, as text."""
    return f'tenant="{topic.tenant}",topic="{escaped(topic.name)}"'


def _gauge(name: str, text: str) -> MetricHead:
    return MetricHead(f"weir_{name}", Kind.GAUGE, text)


def _counter(name: str, text: str) -> MetricHead:
    return MetricHead(f"weir_{name}", Kind.COUNTER, text)


@dataclass(frozen=True, slots=True)
class Family:
    """Series of one set of labels."""

    name: str
    columns: Sequence[Column]
    series: Callable[[TopicFigures, int], Sequence[Series]]
    """Those of one topic, at a wall time in ms."""


def _topic_series(topic: TopicFigures, _now_ms: int) -> Sequence[Series]:
    values = topic.messages, topic.published, topic.published_bytes, topic.refused
    return ((topic_labels(topic.info), values),)


def _queue_series(topic: TopicFigures, _now_ms: int) -> Sequence[Series]:
    text = topic_labels(topic.info)
    return [
        (f'{text},queue="{number}"', (following - first, first, following))
        for number, first, following in topic.queues
    ]


def _depth_series(topic: TopicFigures, now_ms: int) -> Sequence[Series]:
    text, found = topic_labels(topic.info), []
    for name, each in topic.groups.items():
        age_ms = 0 if each.oldest_ms is None else max(now_ms - each.oldest_ms, 0)
        values = each.ready, each.leased, each.delayed, each.lag, age_ms / 1_000, each.consumers
        found.append((f'{text},group="{escaped(name)}"', values))
    return found


def _delivery_series(topic: TopicFigures, _now_ms: int) -> Sequence[Series]:
    text, found = topic_labels(topic.info), []
    for name, each in topic.groups.items():
        counts = each.counts
        values = counts.delivered, counts.delivered_bytes, counts.redelivered
        found.append((f'{text},group="{escaped(name)}"', (*values, each.acked, each.expired)))
    return found


_NONE = (0,) * (2 * len(_REASONS))


def _dead_letter_series(topic: TopicFigures, _now_ms: int) -> Sequence[Series]:
    text, found = topic_labels(topic.info), []
    for name, each in topic.groups.items():
        dead, discarded = each.counts.dead_letters, each.counts.discarded
        values: Sequence[int] = _NONE
        if dead or discarded:
            values = [
                (counted or {}).get(reason, 0)
                for counted in (dead, discarded)
                for reason in _REASONS
            ]
        found.append((f'{text},group="{escaped(name)}"', values))
    return found


def _wait_series(topic: TopicFigures, _now_ms: int) -> Sequence[Series]:
    text, found = topic_labels(topic.info), []
    for name, each in topic.groups.items():
        waits = each.counts.waits
        if waits is not None:
            sums = waits.cumulative()
            values = (*sums, waits.sum_ms / 1_000, sums[-1])
            found.append((f'{text},group="{escaped(name)}"', values))
    return found


def _by_reason(metric: MetricHead) -> list[Column]:
    return [Column(metric, "_total", f',reason="{each.value}"') for each in _REASONS]


def _histogram(metric: MetricHead) -> list[Column]:
    bounds = [str(each / 1_000) for each in WAIT_BOUNDS_MS] + ["+Inf"]
    buckets = [Column(metric, "_bucket", f',le="{each}"') for each in bounds]
    return [*buckets, Column(metric, "_sum"), Column(metric, "_count")]


_TOPIC_HEADS = [
    _gauge("topic_messages", "Messages from the first that somebody needs to the last."),
    _counter("topic_published_messages", "Messages stored in the topic."),
    _counter("topic_published_bytes", "Bytes of their properties and bodies."),
]
_REFUSED = _counter(
    "topic_refused_messages",
    "Messages that the topic refused, since this process began: `full`, its limit was reached.",
)

FAMILIES: Final = {
    each.name: each
    for each in (
        Family(
            "topic",
            [*columns_of(_TOPIC_HEADS), Column(_REFUSED, "_total", ',reason="full"')],
            _topic_series,
        ),
        Family(
            "queue",
            columns_of(
                [
                    _gauge("queue_messages", "Messages from the first that somebody needs on."),
                    _gauge("queue_first_offset", "Offset of that one."),
                    _gauge("queue_next_offset", "Offset that the next message gets."),
                ]
            ),
            _queue_series,
        ),
        Family(
            "depth",
            columns_of(
                [
                    _gauge("group_ready_messages", "Messages that wait for a consumer."),
                    _gauge("group_leased_messages", "Messages in flight: a consumer has them."),
                    _gauge("group_delayed_messages", "Messages that are not due yet."),
                    _gauge("group_lag_messages", "Messages that the group is not done with."),
                    _gauge("group_oldest_age_seconds", "Age of the oldest of them; 0: none."),
                    _gauge("group_consumers", "Consumers that messages are pushed to."),
                ]
            ),
            _depth_series,
        ),
        Family(
            "delivery",
            columns_of(
                [
                    _counter(
                        "group_delivered_messages",
                        "Messages handed to consumers, each time, since this process began.",
                    ),
                    _counter("group_delivered_bytes", "Bytes of their properties and bodies."),
                    _counter(
                        "group_redelivered_messages",
                        "Of them, those whose delivery before came to nothing.",
                    ),
                    _counter("group_acked_messages", "Messages that consumers were done with."),
                    _counter(
                        "group_expired_messages",
                        "Messages dropped too old, where nobody takes dead letters.",
                    ),
                ]
            ),
            _delivery_series,
        ),
        Family(
            "dead_letter",
            [
                *_by_reason(
                    _counter("group_dead_lettered_messages", "Dead letters, since it began.")
                ),
                *_by_reason(
                    _counter(
                        "group_discarded_messages",
                        "Messages dropped that nobody takes as dead letters, since it began.",
                    )
                ),
            ],
            _dead_letter_series,
        ),
        Family(
            "wait",
            _histogram(
                MetricHead(
                    "weir_group_wait_seconds",
                    Kind.HISTOGRAM,
                    "Time from stored to handed out, of topics that node.metrics.topics names.",
                )
            ),
            _wait_series,
        ),
    )
}

TENANT_COLUMNS: Final = columns_of(
    [
        _gauge("tenant_topics", "Topics of which a queue is led here."),
        _gauge("tenant_topic_messages", "Messages in them that somebody needs."),
        _gauge("tenant_ready_messages", "Messages that wait for a consumer, in all groups."),
        _gauge("tenant_leased_messages", "Messages in flight, in all groups."),
        _counter("tenant_published_messages", "Messages stored, since this process began."),
        _counter("tenant_published_bytes", "Bytes of their properties and bodies."),
        _counter("tenant_delivered_messages", "Messages handed to consumers, each time."),
        _counter("tenant_delivered_bytes", "Bytes of their properties and bodies."),
        _counter("tenant_redelivered_messages", "Of them, those that were delivered before."),
        _counter("tenant_acked_messages", "Messages that consumers were done with."),
        _counter("tenant_dead_lettered_messages", "Dead letters."),
        _counter("tenant_discarded_messages", "Messages that nobody took as dead letters."),
        _counter("tenant_refused_messages", "Messages that full topics refused."),
    ]
)


def tenant_series(tenant: str, totals: TenantTotals) -> Series:
    """One tenant's."""
    now = totals.now
    gauges = totals.topics, totals.messages, totals.ready, totals.leased
    return f'tenant="{tenant}"', (*gauges, *now.values())
