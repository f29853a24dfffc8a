"""One subscription of a session: its options, how it is served, and what overlaps with what."""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from adapters.mqtt.messages.views import FrameKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from adapters.mqtt.codec.topic_filter import TopicFilter
    from adapters.mqtt.messages.views import View
    from adapters.mqtt.session.events import SubscriptionRequest
    from adapters.mqtt.subscriptions.live import LivePattern
    from kernel.api.client import Consumer
    from kernel.api.model import TopicInfo

_OPTIONS: Final = Struct("<BI")
_QOS: Final = 0x03
_NO_LOCAL: Final = 0x04
_KEEPS_RETAIN: Final = 0x08
_TELLS_UID: Final = 0x10

UID_REQUEST: Final = "weir.uid"
"""User property of a SUBSCRIBE that asks for the message's uid, as a user property of that name."""


class Options(NamedTuple):
    """The options of one subscription (MQTT5 3.8.3.1), as they outlive a connection."""

    qos: int
    no_local: bool = False
    keeps_retain: bool = False
    identifier: int = 0
    tells_uid: bool = False

    def encoded(self) -> bytes:
        """`bits:u8 | identifier:u32`; bits: QoS, 4 No Local, 8 Retain As Published, 16 uid."""
        bits = self.qos
        bits |= _NO_LOCAL * self.no_local | _KEEPS_RETAIN * self.keeps_retain
        return _OPTIONS.pack(bits | _TELLS_UID * self.tells_uid, self.identifier)

    def frame_kind(self, level: int) -> FrameKind:
        """What deliveries by this subscription alone look like to a client of `level`."""
        identifiers = (self.identifier,) if self.identifier else ()
        return FrameKind(
            level, self.qos, self.keeps_retain, identifiers, self.tells_uid, self.no_local
        )


def decode_options(data: bytes) -> Options:
    """Inverse of `Options.encoded`."""
    bits, identifier = _OPTIONS.unpack(data)
    return Options(
        bits & _QOS,
        bool(bits & _NO_LOCAL),
        bool(bits & _KEEPS_RETAIN),
        identifier,
        bool(bits & _TELLS_UID),
    )


def options_of(
    request: SubscriptionRequest, identifier: int, user_properties: Iterable[tuple[str, str]]
) -> Options:
    """The options that a SUBSCRIBE asks for one of its filters."""
    return Options(
        request.qos,
        request.no_local,
        request.retain_as_published,
        identifier,
        any(name == UID_REQUEST for name, _ in user_properties),
    )


class Way(IntEnum):
    """How a subscription is served."""

    LIVE = 0
    """By a watch: what comes while the client is there."""
    STORED = 1
    """By the subscriber's cursor on what is stored for the pattern."""
    TOPIC = 2
    """As a member of a consumer group of a topic of that name."""
    SYSTEM = 3
    """By the server itself, which tells figures (`system_topics`)."""


class Subscribed:
    """One subscription of an open connection."""

    __slots__ = ("consumer", "filter", "held", "kind", "options", "pattern", "text", "topic", "way")

    def __init__(
        self, text: str, topic_filter: TopicFilter, options: Options, way: Way, level: int
    ) -> None:
        self.text = text
        self.filter = topic_filter
        self.options = options
        self.way = way
        self.kind = options.frame_kind(level)
        self.held: list[View] | None = None
        """Live messages that must wait until the retained ones have been sent."""
        self.pattern: LivePattern | None = None
        """Where it is registered, if it is LIVE."""
        self.consumer: Consumer | None = None
        """Its membership, if it is of the way TOPIC."""
        self.topic: TopicInfo | None = None
        """Of whose consumer group it is a member then."""

    @property
    def is_shared(self) -> bool:
        return bool(self.filter.share_name)


def overlaps(one: TopicFilter, other: TopicFilter) -> bool:
    """Whether a name can fall under both filters, shared ones never counting ([MQTT-3.3.4-2])."""
    if one.share_name or other.share_name:
        return False
    if not one.has_wildcard and not other.has_wildcard:
        return one.pattern == other.pattern
    if not one.has_wildcard:
        return other.matches(one.pattern)
    if not other.has_wildcard:
        return one.matches(other.pattern)
    return _levels_meet(one.levels, other.levels)


def _levels_meet(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    for index in range(max(len(one), len(other))):
        left = one[index] if index < len(one) else None
        right = other[index] if index < len(other) else None
        if left == "#" or right == "#":
            return True
        if left is None or right is None:
            return False
        if left != right and "+" not in (left, right):
            return False
    return True


def combined(kinds: list[FrameKind], level: int) -> FrameKind:
    """What one delivery for several subscriptions looks like: the highest QoS and all the
    identifiers ([MQTT-3.3.4-2], [MQTT-3.3.4-3]).
    """
    return FrameKind(
        level,
        max(kind.qos for kind in kinds),
        any(kind.keeps_retain for kind in kinds),
        tuple(identifier for kind in kinds for identifier in kind.identifiers),
        any(kind.tells_uid for kind in kinds),
    )
