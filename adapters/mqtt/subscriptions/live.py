"""Fan-out of live messages: one watch of the tree per distinct pattern, shared by its sessions.

    watch ── LivePattern ── kinds:   FrameKind → {inbox, inbox, …}      the same bytes for each
                        └── singles: {inbox: subscription}              looked at one by one

A message is read once per pattern and encoded once per kind of frame; each delivery then costs an
append and, at QoS 1 and 2, a packet identifier. Sessions whose subscriptions overlap, or that are
still waiting for retained messages, are singles.

A pattern with more than FAN_OUT_TOGETHER_MAX subscribers is served in rounds, so many of them in
each turn of the event loop: to write to ten thousand takes half a second, and what they do not read
must count before it is all there. What comes during a round is the next one, so each subscriber has
its messages in order; who joins hears what came afterwards, who leaves what came before.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final

from adapters.mqtt.limits import FAN_OUT_TOGETHER_MAX, FAN_OUT_WAITING_BYTES_MAX
from adapters.mqtt.messages.views import FrameKind, View
from adapters.mqtt.subscriptions.subscription import LivePattern, Round

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adapters.mqtt.subscriptions.subscription import LiveReceiver, Place, Subscribed
    from adapters.transport import StreamHost
    from kernel.api.origins import Origins
    from kernel.api.tree import Tree, Watch
    from kernel.common.ports import Clock

_VIEW_BYTES: Final = 1_024
"""What a message takes that waits, besides its properties and body."""
_HOLD: Final = "live"


class LiveRouter:
    """The live subscriptions of a process. `kernel.api.tree.WatchSink`."""

    def __init__(
        self,
        tree: Tree,
        origins: Origins,
        clock: Clock,
        soon: Callable[[Callable[[], None]], object],
    ) -> None:
        """`soon` calls in the next turn of the event loop."""
        self._tree = tree
        self._origins = origins
        self._clock = clock
        self._soon = soon
        self._patterns: dict[tuple[str, str], LivePattern] = {}
        self._in_rounds: deque[LivePattern] = deque()
        self._held: dict[StreamHost, None] = {}
        """Publishers that are not read until less waits."""
        self.waiting_bytes = 0
        """Of messages that wait for the next round of their pattern."""

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
        if pattern.round is not None:
            place = receiver, subscription if single else subscription.kind
            pattern.round.joined[place] = len(pattern.round.later)
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

    def _take_out(
        self, pattern: LivePattern, receiver: LiveReceiver, subscription: Subscribed
    ) -> None:
        if pattern.round is not None:
            for how in (subscription, subscription.kind):
                self._catch_up(pattern, (receiver, how))
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
        if pattern.round is not None or pattern.size > FAN_OUT_TOGETHER_MAX:
            views = [View(slot, self._origins) for slot in slots]
            self._fan_out(pattern, [view for view in views if not view.expired(now_ms)])
            return
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

    # --- To very many -----------------------------------------------------------------------

    def publishes(self, host: StreamHost) -> None:
        """Somebody has published: it is read no further while too much waits (hot)."""
        if self.waiting_bytes > FAN_OUT_WAITING_BYTES_MAX // 2:
            self._held[host] = None
            host.hold_reading(_HOLD)

    def _fan_out(self, pattern: LivePattern, views: list[View]) -> None:
        if not views:
            return
        current = pattern.round
        if current is None:
            pattern.round = Round(views, pattern.places(), {})
            if not self._in_rounds:
                self._soon(self._go_on)
            if pattern not in self._in_rounds:
                self._in_rounds.append(pattern)
            return
        current.later += views
        self.waiting_bytes += _bytes_of(views)
        if self.waiting_bytes > FAN_OUT_WAITING_BYTES_MAX:
            # From whoever is not held back, another gateway say: as late as they come, but all.
            while pattern.round is not None:
                self._step(pattern, pattern.round, len(pattern.round.left))

    def _go_on(self) -> None:
        """One turn."""
        pattern = self._in_rounds.popleft()
        if pattern.round is not None:
            self._step(pattern, pattern.round, pattern.round.amount)
        if pattern.round is not None:
            self._in_rounds.append(pattern)
        if self._in_rounds:
            self._soon(self._go_on)
        if self._held and self.waiting_bytes <= FAN_OUT_WAITING_BYTES_MAX // 2:
            held, self._held = self._held, {}
            for host in held:
                host.release_reading(_HOLD)

    def _step(self, pattern: LivePattern, current: Round, count: int) -> None:
        """So many get what the round brings; behind the last of them begins the next."""
        left, views, skips = current.left, current.views, current.skips
        for place in list(islice(left, count)):
            del left[place]
            self._hand_over(place, views[skips[place] :] if place in skips else views)
        if left:
            return
        pattern.round = None
        if current.later:
            self.waiting_bytes -= _bytes_of(current.later)
            pattern.round = Round(current.later, pattern.places(), current.joined)

    def _catch_up(self, pattern: LivePattern, place: Place) -> None:
        """A subscriber that is about to leave, or to be another, gets what came before."""
        current = pattern.round
        if current is None:
            return
        receiver, how = place
        if place in current.left:
            del current.left[place]
            self._hand_over(place, current.views[current.skips.get(place, 0) :])
        if isinstance(how, FrameKind):
            is_member = receiver in pattern.kinds.get(how, ())
        else:
            is_member = (pattern.singles or {}).get(receiver) is how
        skipped = current.joined.pop(place, 0)
        if is_member:
            self._hand_over(place, current.later[skipped:])

    def _hand_over(self, place: Place, views: list[View]) -> None:
        receiver, how = place
        now_ms = self._clock.wall_ms()
        for view in views:
            if view.expired(now_ms):
                continue
            if not isinstance(how, FrameKind):
                receiver.live_single(view, how)
            elif not (how.no_local and receiver.publisher == view.publisher):
                waited_ms = max(0, now_ms - view.published_ms) if view.ttl_ms else 0
                receiver.live(view.frame(how, waited_ms), view, how)


def _bytes_of(views: list[View]) -> int:
    return sum(view.size_bytes + _VIEW_BYTES for view in views)
