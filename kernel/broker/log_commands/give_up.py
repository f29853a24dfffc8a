"""The command that gives up a log entry which does not read (`lost_entries` carries it out)."""

from __future__ import annotations

import msgspec

from ...common.ids import QueueId


class GiveUp(msgspec.Struct, frozen=True, array_like=True):
    """No message in this log entry can be read. Result: how many of them somebody still waited for.
    A repeat finds none.
    """

    index: int
    queues: tuple[QueueId, ...]
