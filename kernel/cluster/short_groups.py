"""Groups with fewer replicas than they should have, as every store is told: a record of group 0.

    cluster/short    MessagePack of {group: `ShortGroup`}; none: no group is

The manager writes it with what the planner says, once that has been so for a while: a copy that is
done in seconds is nobody's business. Every store has group 0, and so says it in its health, and
leaves groups that are closed out when it makes queues (`definitions.queue_placement`).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ..common.errors import UNDECODABLE
from ..common.ids import RaftGroup
from .placement.view import Plan

KEY = "cluster/short"

AFTER_MS = 10_000
"""A group is written down when it has been short for so long; when it is not any more at once."""


class ShortGroup(msgspec.Struct, frozen=True, array_like=True):
    """One of them."""

    what: str
    """For people."""
    closed: bool = False
    """Nothing new is placed there: there are stores for another replica."""


_decoder = msgspec.msgpack.Decoder(dict[int, ShortGroup])


def encode(groups: Mapping[int, ShortGroup]) -> bytes | None:
    """The record's value; None: there is to be none."""
    return msgspec.msgpack.encode(dict(groups)) if groups else None


def read(records: Mapping[str, tuple[int, bytes]]) -> tuple[int, dict[int, ShortGroup]]:
    """(version, groups); what cannot be read, of a later version perhaps, is as good as none."""
    version, value = records.get(KEY, (0, b""))
    if not value:
        return version, {}
    try:
        return version, _decoder.decode(value)
    except UNDECODABLE:
        return version, {}


def closed(groups: Mapping[int, ShortGroup]) -> set[RaftGroup]:
    """Those that take nothing new."""
    return {RaftGroup(each) for each, group in groups.items() if group.closed}


class ShortSince:
    """What a manager has to write, by what it has seen."""

    def __init__(self) -> None:
        self._since_ms: dict[int, int] = {}

    def look(self, plan: Plan, now_ms: int) -> dict[int, ShortGroup]:
        """What the record should say."""
        self._since_ms = {each: self._since_ms.get(each, now_ms) for each in plan.short}
        return {
            each: ShortGroup(plan.short[each], each in plan.closed)
            for each, since_ms in sorted(self._since_ms.items())
            if now_ms - since_ms >= AFTER_MS
        }
