"""Metrics of topics that have a size: at the store that leads the topic's home, which looks at what
is used. All of them are shown, for there are few (`topic_sizes.SIZES_MAX`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.admin.metrics.series_text import Column, Kind, MetricHead, columns_of, escaped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gateway.admin.metrics.series_text import Series
    from kernel.definitions.sizing import Figures


def _bounds(name: str, text: str) -> list[Column]:
    head = MetricHead(name, Kind.GAUGE, text)
    return [Column(head, "", f',bound="{each}"') for each in ("smallest", "largest", "now")]


SIZE_COLUMNS: Final = [
    *_bounds(
        "weir_topic_size_messages", "Messages a second of a topic's sizes; 0: that bounds nothing."
    ),
    *_bounds("weir_topic_size_bytes", "Bytes a second of a topic's sizes."),
    *columns_of(
        [
            MetricHead(
                "weir_topic_size_used_messages",
                Kind.GAUGE,
                "Messages stored in the last second in a topic that has a size.",
            ),
            MetricHead("weir_topic_size_used_bytes", Kind.GAUGE, "Bytes of them."),
            MetricHead(
                "weir_topic_size_used_ratio",
                Kind.GAUGE,
                "What part that is of the largest size.",
            ),
        ]
    ),
]

SIZES_COLUMNS: Final = columns_of(
    [
        MetricHead("weir_topic_sizes", Kind.GAUGE, "Topics with a size that are looked at here."),
        MetricHead(
            "weir_topic_sizes_unheard",
            Kind.GAUGE,
            "Of them, those of which not every Raft group tells what is used: nothing is decided.",
        ),
    ]
)


def size_series(found: Iterable[Figures]) -> list[Series]:
    """Those of each topic, by tenant and name."""
    return [_series(each) for each in sorted(found, key=lambda each: each[:2])]


def _series(found: Figures) -> Series:
    size, now, use = found.size, found.now, found.use
    values = (
        *(size.messages_min, size.messages_max, now.messages),
        *(size.bytes_min, size.bytes_max, now.bytes),
        *(use.messages, use.bytes, size.most.part(use.messages, use.bytes)),
    )
    return f'tenant="{found.tenant}",topic="{escaped(found.name)}"', values


def sizes_series(found: Sequence[Figures]) -> list[Series]:
    """How many there are, without their names."""
    return [("", (len(found), sum(each.is_unheard for each in found)))]
