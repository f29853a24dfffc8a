"""The filters of one (queue, group) at its leader: the group's own, and those of its consumers.

The leader evaluates, the log records: what does not match is settled as SKIP, so that a replay, or
another leader, never evaluates anything (docs/design/delivery.md#delivery). Filtered messages are
counted here; they are neither delivered nor billed as delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...api.filters import MessageFilter, compile_filter
from ...api.model import GroupFilter
from ...api.origins import Origins
from ...log.format import entry as entries
from ..index.features import Feature
from ..index.run_page import Run

SCAN_MAX = 2_000
"""Messages looked at in one turn of the event loop, at some 5 us each: where few match, the loop
goes on with other work in between."""


class Filtering:
    """Applies filters, and bounds what one turn costs."""

    __slots__ = ("_compiled", "_looked_at", "_origins", "_setting", "_soon", "count")

    def __init__(self, origins: Origins, soon: Callable[[], object]) -> None:
        """`soon()` has the dispatcher go on in a later turn."""
        self._origins = origins
        self._soon = soon
        self._setting: GroupFilter | None = None
        self._compiled: MessageFilter | None = None
        self._looked_at = 0
        self.count = 0
        """Messages filtered out since this leader began."""

    def of_group(self, setting: GroupFilter | None) -> MessageFilter | None:
        """The group's filter; None: every message."""
        if setting is not self._setting:
            self._setting = setting
            self._compiled = compile_filter(setting)
        return self._compiled

    def split(
        self, wanted: MessageFilter, run: Run, offsets: Sequence[int], entry: bytes
    ) -> tuple[Sequence[int], list[int]]:
        """(to be handed out, filtered out) of some messages of a run."""
        base = run.slot - run.first
        matches, value, origins = wanted.matches, run.value, self._origins
        self._looked_at += len(offsets)
        kept = [
            each
            for each in offsets
            if matches(value(Feature.TAG, each), entries.slot(entry, base + each), origins)
        ]
        if len(kept) == len(offsets):
            return offsets, []
        self.count += len(offsets) - len(kept)
        return kept, sorted(set(offsets).difference(kept))

    def goes_on(self) -> bool:
        """Whether this turn may look at further messages; else one soon does."""
        if self._looked_at < SCAN_MAX:
            return True
        self._looked_at = 0
        self._soon()
        return False
