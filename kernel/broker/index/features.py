"""Features of messages beyond the plain, as bits of their run, and the columns of their values.

The low bits are features, which a run keeps in the index (`run_page`), with a column of values per
feature. The high ones only say how the messages are counted (`usage`); they stand in commands.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence

from ...api.message import HEADER, Flag

U32_MAX = (1 << 32) - 1
"""TTLs and delays are clipped to it: 49.7 days, above the longest delay that any protocol allows
(40 days). Runs in which a TTL is longer have `Feature.LONG_TTL` besides."""

COPY = 1 << 15
"""Bit of a run beside its features: its messages have a destination before this one, by which
they are counted as published (`usage`). Stands in commands only, never in a page."""

LARGE = 1 << 14
"""Another: one of its messages takes more than one unit (`usage`); whoever made the run looked."""

CUT = 1 << 11
"""Another: messages behind its last one had no room in the queue's topic, so that its result is a
list of those that had (`store.topic_room`). Such a run may be empty."""

CLASS_1, CLASS_2 = 1 << 12, 1 << 13
"""Further ones: the class that its messages were published with (`message.Flag`), for `usage`."""

CLASSES = CLASS_1 | CLASS_2
CLASS_SHIFT = 12

_CLASS_FLAGS = int(Flag.CLASS_1 | Flag.CLASS_2)
_DEDUPLICATE = int(Flag.DEDUPLICATE)
_FLAG_SHIFT = 8
"""From a flag of a header to the bit of a run."""


class Feature:
    """What the messages of a run may have beyond the plain: bits, as plain integers, since `&` with
    a member of an IntFlag costs as much as appending the run.
    """

    PRIORITY = 1
    TTL = 2
    DELAY = 4
    KEY = 8
    TAG = 16
    DEDUPLICATE = 32
    """Asks for the topic's deduplication window; stands in commands only, never in a page."""
    ORIGIN_INDEX = 64
    """The message lies in an earlier log entry than the one that gave it its offset."""
    ORIGIN_SLOT = 128
    SIZE = 256
    """Bytes of the body, for topics that are limited by them."""
    AGE = 512
    """Seconds that a dead letter had been stored elsewhere when it came: retention counts from the
    first send."""
    HOLE = 1024
    """No message at all: offsets that every group is done with."""
    LONG_TTL = 2048
    """A TTL of the run is above U32_MAX, or `message.TTL_AT_ONCE`: the column has them as they are.
    Stands in pages only; those of older builds have none, there such a TTL counts as U32_MAX."""


COLUMNS: tuple[tuple[int, str, int], ...] = (
    (Feature.PRIORITY, "B", 2),
    (Feature.TTL, "I", 10),
    (Feature.DELAY, "I", 11),
    (Feature.KEY, "Q", 12),
    (Feature.TAG, "I", 13),
    (Feature.ORIGIN_INDEX, "Q", -1),
    (Feature.ORIGIN_SLOT, "I", -1),
    (Feature.SIZE, "I", 4),
    (Feature.AGE, "I", 14),
    (Feature.LONG_TTL, "Q", -1),
)
"""(feature, type of its array, where it stands among the fields of a header; -1: nowhere)."""

COLUMN_KINDS = {feature: kind for feature, kind, _ in COLUMNS}

_PLAIN = bytes(28)
_DETAILS = struct.Struct("<QQQI")


def features_of(header: bytes) -> int:
    """Features of one message, from the first bytes of its slot (hot: nearly always 0)."""
    flags = header[3]
    plain = (1 if header[2] else 0) | (flags & _CLASS_FLAGS) << _FLAG_SHIFT
    if flags & _DEDUPLICATE:
        plain |= 32
    if header[40:68] == _PLAIN:
        return plain
    ttl, delay, key, tag = _DETAILS.unpack_from(header, 40)
    return plain | (2 if ttl else 0) | (4 if delay else 0) | (8 if key else 0) | (16 if tag else 0)


def columns_of(features: int, entry: bytes, bounds: Sequence[int]) -> dict[int, array[int]]:
    """Columns of a run with features: `bounds` are where its slots begin within `entry`."""
    rows = [HEADER.unpack_from(entry, at) for at in bounds]
    columns: dict[int, array[int]] = {}
    for feature, kind, field in COLUMNS:
        if features & feature and field >= 0:
            columns[feature] = array(kind, [min(row[field], _LIMITS[kind]) for row in rows])
    if features & Feature.TTL:
        ttls = [row[_TTL_FIELD] for row in rows]
        if max(ttls) > U32_MAX:
            columns[Feature.LONG_TTL] = array("Q", ttls)
    return columns


def each_of(first: int, count: int) -> list[tuple[int, bytes]]:
    """The result of a CUT run: where each message went that is left of it."""
    return [(offset, b"") for offset in range(first, first + count)]


_TTL_FIELD = 10
_LIMITS = {"B": 255, "I": U32_MAX, "Q": (1 << 64) - 1}
