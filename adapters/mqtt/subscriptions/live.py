"""Fan-out of live messages: one watch of the tree per distinct pattern, shared by its sessions.

    watch ── LivePattern ── kinds:   FrameKind → {inbox, inbox, …}      the same bytes for each
                        └── singles: {inbox: subscription}              looked at one by one

A message is read once per pattern and encoded once per kind of frame; each delivery then costs an
append and, at QoS 1 and 2, a packet identifier. Sessions whose subscriptions overlap, or that are
still waiting for retained messages, are singles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from adapters.mqtt.messages.views import View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from adapters.mqtt.codec.encoder import PublishFrame
    from adapters.mqtt.messages.views import FrameKind
    from adapters.mqtt.subscriptions.subscription import Subscribed
    from kernel.api.origins import Origins
    from kernel.api.tree import Tree, Watch
    from kernel.common.ports import Clock


class LiveReceiver(Protocol):
    """A session's side of the fan-out."""

    publisher: int
    """Hash of its subscriber name, for No Local."""

    def live(self, frame: PublishFrame, view: View, kind: FrameKind) -> None:
        """A message for a subscription that overlaps with no other (hot)."""

    def live_single(self, view: View, subscription: Subscribed) -> None:
        """A message for a subscription that needs a look of its own."""


class LivePattern:
    """Who watches one pattern of one tenant."""

    __slots__ = ("key", "kinds", "singles", "watch")

    def __init__(self, key: tuple[str, str]) -> None:
        self.key = key
        self.kinds: dict[FrameKind, dict[LiveReceiver, None]] = {}
        self.singles: dict[LiveReceiver, Subscribed] | None = None
        self.watch: Watch | None = None

    @property
    def is_empty(self) -> bool:
        return not self.kinds and not self.singles


class LiveRouter:
    """The live subscriptions of a process. `kernel.api.tree.WatchSink`."""

    def __init__(self, tree: Tree, origins: Origins, clock: Clock) -> None:
        self._tree = tree
        self._origins = origins
        self._clock = clock
        self._patterns: dict[tuple[str, str], LivePattern] = {}

    @property
    def pattern_count(self) -> int:
        """Distinct patterns that are watched now."""
        return len(self._patterns)

    def join(
        self,
        tenant: str,
        receiver: LiveReceiver,
        subscription: Subscribed,
        *,
        single: bool,
        instead_of: Subscribed | None = None,
    ) -> None:
        """Have a subscription served, or serve it in the other way, or `instead_of` an earlier one
        of the same filter; the pattern is watched without a break. Raises KernelError.
        """
        key = (tenant, subscription.filter.pattern)
        pattern = self._patterns.get(key)
        if pattern is None:
            pattern = LivePattern(key)
            pattern.watch = self._tree.watch(*key, self, pattern)
            self._patterns[key] = pattern
        for earlier in (subscription, instead_of):
            if earlier is not None and earlier.pattern is pattern:
                earlier.pattern = None
                self._take_out(pattern, receiver, earlier)
        if single:
            if pattern.singles is None:
                pattern.singles = {}
            pattern.singles[receiver] = subscription
        else:
            pattern.kinds.setdefault(subscription.kind, {})[receiver] = None
        subscription.pattern = pattern

    def leave(self, receiver: LiveReceiver, subscription: Subscribed) -> None:
        """No more messages for a subscription. Idempotent."""
        pattern = subscription.pattern
        if pattern is not None:
            subscription.pattern = None
            self._take_out(pattern, receiver, subscription)
            if pattern.is_empty:
                del self._patterns[pattern.key]
                if pattern.watch is not None:
                    pattern.watch.cancel()

    @staticmethod
    def _take_out(pattern: LivePattern, receiver: LiveReceiver, subscription: Subscribed) -> None:
        if pattern.singles is not None and pattern.singles.pop(receiver, None) is not None:
            if not pattern.singles:
                pattern.singles = None
            return
        members = pattern.kinds.get(subscription.kind)
        if members is not None:
            members.pop(receiver, None)
            if not members:
                del pattern.kinds[subscription.kind]

    def published_live(self, watch: Watch, slots: Sequence[bytes]) -> None:
        """See `WatchSink`. A hot loop."""
        pattern = watch.tag
        assert isinstance(pattern, LivePattern)
        now_ms = self._clock.wall_ms()
        for slot in slots:
            view = View(slot, self._origins)
            if view.expired(now_ms):
                continue
            waited_ms = max(0, now_ms - view.published_ms) if view.ttl_ms else 0
            for kind, members in list(pattern.kinds.items()):
                frame = view.frame(kind, waited_ms)
                if not kind.no_local:
                    for receiver in list(members):
                        receiver.live(frame, view, kind)
                    continue
                for receiver in list(members):
                    if receiver.publisher != view.publisher:
                        receiver.live(frame, view, kind)
            if pattern.singles:
                for receiver, subscription in list(pattern.singles.items()):
                    receiver.live_single(view, subscription)
