"""Live routes of the topic tree in this process, and the handing over of what they match."""

from __future__ import annotations

from collections.abc import Callable

from .publish import Batch
from .tree import WatchSink


class LocalWatch:
    """`tree.Watch`."""

    __slots__ = ("_cancel", "pattern", "sink", "tag", "tenant")

    def __init__(
        self,
        tenant: str,
        pattern: str,
        sink: WatchSink,
        tag: object,
        cancel: Callable[[LocalWatch], None],
    ) -> None:
        self.tenant = tenant
        self.pattern = pattern
        self.sink: WatchSink | None = sink
        self.tag = tag
        self._cancel = cancel

    def cancel(self) -> None:
        """No more calls follow."""
        if self.sink is not None:
            self.sink = None
            self._cancel(self)


def hand_over(batch: Batch) -> None:
    """Give the live routes what a batch has for them, but for what was refused elsewhere."""
    failures = batch.failures or ()
    slots: dict[LocalWatch, list[bytes]] = {}
    for position, found, parts in batch.live:
        if position in failures:
            continue
        slot = b"".join(parts)
        for watch in found.watches:
            if isinstance(watch, LocalWatch):
                slots.setdefault(watch, []).append(slot)
    batch.live = []
    for watch, each in slots.items():
        if watch.sink is not None:
            watch.sink.published_live(watch, each)
