"""What a core needs of the place where its log lives: a port; the store puts its journal behind it.

Terms and bounds are answered at once, from memory. Bodies need not be in memory: `entries` may say
so, and the core then asks for a read in its Ready and goes on with everybody else. What `stable`
has reported must be visible here before; what is only queued for writing may be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .messages import Entry, Snapshot


class Storage(Protocol):
    """The log of one group: entries `first_index` to `last_index`, a snapshot before them."""

    def first_index(self) -> int:
        """Index of the first entry behind the snapshot; `last_index` + 1 if there is none."""

    def last_index(self) -> int:
        """Index of the last entry, or of the snapshot; 0 at the beginning."""

    def term(self, index: int) -> int:
        """Term of an entry. Asked for `first_index` - 1 (the snapshot's) to `last_index` only."""

    def entries(self, low: int, high: int, max_bytes: int) -> Sequence[Entry] | None:
        """Entries from `low` up to `high` (included), at least one, then while they fit into
        `max_bytes` and are in memory; None if the first is not in memory now.
        """

    def snapshot(self) -> Snapshot | None:
        """A snapshot to send to a member that needs entries before `first_index`; None: not now,
        it is asked for again with the member's next answer. Its index is at least `first_index`
        - 1. One whose membership lacks the member is of no use: take it after the change that
        added it.
        """
