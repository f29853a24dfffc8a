"""How fast stores take in copies of groups: a record of group 0.

    cluster/copy_rate    bytes a second of each store, in decimal digits; 0: no bound; no record:
                         each store has what its own settings say

A copy is what a replica begins with, in a store that is to have the group, or catches up with. It
takes disk and network from clients, and nobody waits for it. But a group with fewer replicas than
it should have is not safe until it has them: a copy of it may take URGENT times as much.

It takes no level of the log: a build from before it passes the record over, and is as fast as its
settings say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from ..common.errors import Code, KernelError
from ..common.ids import RaftGroup
from ..common.ports import Clock
from ..store.node import Store
from . import short_groups

KEY = "cluster/copy_rate"

URGENT = 4
"""Twice would be hardly noticed, and with ten times as much clients would be: they are short of a
store as it is."""

RATE_MIN = 1_000_000
"""Less is a standstill: an entry may have 16 MB."""

RATE_MAX = 100_000_000_000

DEFAULT = -1
"""As a rate that is asked for: what each store's settings say, so that there is no record. An older
build refuses it."""

LOOK_MS = 1_000
"""So often the records are looked at, however many pieces come."""

Records = Mapping[str, tuple[int, bytes]]


def encode(rate: int) -> bytes | None:
    """The record's value; None: there is none, for DEFAULT."""
    return b"%d" % rate if rate != DEFAULT else None


def read(records: Records) -> tuple[int, int | None]:
    """(version, bytes a second); None without a record, or for one that cannot be read."""
    version, value = records.get(KEY, (0, b""))
    return version, int(value) if value.isdigit() and len(value) <= 12 else None


def check(rate: int) -> None:
    """Raise KernelError INVALID_ARGUMENT for a rate that cannot be set."""
    if rate not in {0, DEFAULT} and not RATE_MIN <= rate <= RATE_MAX:
        message = f"copies have {RATE_MIN} to {RATE_MAX} bytes a second, or 0 for no bound"
        raise KernelError(Code.INVALID_ARGUMENT, message)


class CopyRate:
    """What the copies of a group may take in this store."""

    def __init__(
        self, store: Store, clock: Clock, records: Callable[[str], Records], setting: int
    ) -> None:
        """`records(prefix)`: those of group 0, as far as they are known here. `setting`: bytes a
        second, 0: no bound, as long as there is no record.
        """
        self._healing = store.consensus.healing
        self._clock = clock
        self._records = records
        self._setting = setting
        self._looked_ms = -math.inf
        self._rate = setting
        self._short: frozenset[int] = frozenset()

    def of(self, group: RaftGroup) -> int:
        """Bytes a second; 0: no bound."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._looked_ms >= LOOK_MS:
            self._looked_ms = now_ms
            rate = read(self._records(KEY))[1]
            self._rate = self._setting if rate is None else rate
            self._short = frozenset(short_groups.read(self._records(short_groups.KEY))[1])
        urgent = group in self._short or group in self._healing.lost
        return self._rate * URGENT if urgent else self._rate
