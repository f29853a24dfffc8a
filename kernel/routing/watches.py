"""Live routes of the topic tree in this process."""

from __future__ import annotations

from collections.abc import Callable

from ..api.tree import WatchSink


class LocalWatch:
    """Hears live what is published under a pattern (`tree.Watch`)."""

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
