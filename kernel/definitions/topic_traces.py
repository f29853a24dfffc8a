"""Topics that are traced: metadata records of group 0, which every process has.

    traces/TENANT/NAME      (the record's key; each part percent-encoded)
    MessagePack of TopicTraced

A record is of the one topic that had that name when it was written: the next one of the same name
is not traced, and the leader of its home removes the record (`topic_records`). One that cannot be
read, of a later version perhaps, is as good as none.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import msgspec

from ..api.model import TopicInfo
from ..api.tracing import TraceMode
from ..common.errors import UNDECODABLE
from ..common.ids import TopicId
from . import topic_records

PREFIX = "traces/"

TRACES_MAX = 100
"""Topics that are traced: all of them share one stream, and are looked at each second."""

TENANT_TRACES_MAX = 10
"""Of one tenant: others' are traced too."""

key_of = partial(topic_records.key_of, PREFIX)
prefix_of = partial(topic_records.prefix_of, PREFIX)
name_of_key = partial(topic_records.name_of_key, PREFIX)


class TopicTraced(msgspec.Struct, frozen=True, array_like=True):
    """Which messages of a topic are traced. An older build reads past the last field."""

    topic: int
    """Id of the topic."""
    mode: TraceMode


_decoder = msgspec.msgpack.Decoder(TopicTraced)


def encode(traced: TopicTraced) -> bytes:
    """A record's value."""
    return msgspec.msgpack.encode(traced)


def decode(value: bytes) -> TopicTraced | None:
    """Inverse of `encode`; None for what cannot be read."""
    try:
        return _decoder.decode(value)
    except UNDECODABLE:
        return None


def mode_of(topic: TopicInfo, record: tuple[int, bytes] | None) -> TraceMode:
    """Which messages of a topic are traced, by the record of its name."""
    traced = decode(record[1]) if record is not None else None
    return traced.mode if traced is not None and traced.topic == topic.id else TraceMode.OFF


def modes_of(records: Iterable[tuple[int, TopicTraced]]) -> dict[TopicId, TraceMode]:
    """Which topics are traced, by (version, value) of their records."""
    return {TopicId(each.topic): each.mode for _, each in records if each.mode is not TraceMode.OFF}
