"""Topics that are traced: metadata records of group 0, which every process has.

    traces/TENANT/NAME      (the record's key; each part percent-encoded)
    MessagePack of TopicTraced

A record is of the one topic that had that name when it was written: the next one of the same name
is not traced, and the leader of its home removes the record (`tracing`). One that cannot be read,
of a later version perhaps, is as good as none.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

import msgspec

from ..api.model import TopicInfo
from ..api.tracing import TraceMode

PREFIX = "traces/"

TRACES_MAX = 100
"""Topics that are traced: all of them share one stream, and are looked at each second."""

TENANT_TRACES_MAX = 10
"""Of one tenant: others' are traced too."""

_KEY_PARTS = 2


class TopicTraced(msgspec.Struct, frozen=True, array_like=True):
    """Which messages of a topic are traced. An older build reads past the last field."""

    topic: int
    """Id of the topic."""
    mode: TraceMode


_decoder = msgspec.msgpack.Decoder(TopicTraced)


def key_of(tenant: str, name: str) -> str:
    """The metadata key of a topic's trace."""
    return f"{prefix_of(tenant)}{quote(name, safe='')}"


def prefix_of(tenant: str) -> str:
    """How the keys of a tenant's topics begin."""
    return f"{PREFIX}{quote(tenant, safe='')}/"


def name_of_key(key: str) -> tuple[str, str] | None:
    """(tenant, name) of a key; None: it is none."""
    parts = key.removeprefix(PREFIX).split("/")
    return (unquote(parts[0]), unquote(parts[1])) if len(parts) == _KEY_PARTS else None


def encode(traced: TopicTraced) -> bytes:
    """A record's value."""
    return msgspec.msgpack.encode(traced)


def decode(value: bytes) -> TopicTraced | None:
    """Inverse of `encode`; None for what cannot be read."""
    try:
        return _decoder.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def mode_of(topic: TopicInfo, record: tuple[int, bytes] | None) -> TraceMode:
    """Which messages of a topic are traced, by the record of its name."""
    traced = decode(record[1]) if record is not None else None
    return traced.mode if traced is not None and traced.topic == topic.id else TraceMode.OFF
