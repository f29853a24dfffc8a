"""The inbox of one client: live and retained messages, and what waits until it takes more.

Live messages wait in a bounded backlog while the client's window is used up or its socket is full;
beyond the bound the newest are dropped and counted, because nobody stores them. Retained messages
wait there too, however many: their number is bounded when they are asked for.

A session whose subscriptions overlap gets each message once, with the options of all that match
([MQTT-3.3.4-2]): by the first copy that comes, or by the stored one if there is one.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from adapters.mqtt.limits import BACKLOG_BYTES_MAX, FILTERS_TOGETHER_MAX, RECENT_UIDS_MAX
from adapters.mqtt.session.outbound import Sent
from adapters.mqtt.subscriptions.filter_table import FilterTable
from adapters.mqtt.subscriptions.subscription import Subscribed, Way, combined

if TYPE_CHECKING:
    from collections.abc import Iterable

    from adapters.base import Rights
    from adapters.limiting import Delivering
    from adapters.mqtt.codec.encoder import PublishFrame
    from adapters.mqtt.environment import Environment
    from adapters.mqtt.host import MqttHost
    from adapters.mqtt.messages.views import FrameKind, View
    from adapters.mqtt.reporting.traffic import TenantTraffic
    from adapters.mqtt.session.client_session import Session

LIVE_TOKEN: Final = 0
"""Token of deliveries that nobody stores: their end is of no interest."""
_OVER: Final[deque[tuple[View, FrameKind, bool]]] = deque()
"""The backlog of a connection that is over: nothing is put into it."""
_GONE: Final = Sent.GONE
_NO_CREDIT: Final = Sent.NO_CREDIT


class RecentUids:
    """The last so many uids that were sent."""

    __slots__ = ("_known", "_order")

    def __init__(self) -> None:
        self._known: set[tuple[int, int]] = set()
        self._order: deque[tuple[int, int]] = deque()

    def is_new(self, uid: tuple[int, int]) -> bool:
        """Whether it was not seen lately; it has been from now on."""
        if uid in self._known:
            return False
        if len(self._order) >= RECENT_UIDS_MAX:
            self._known.discard(self._order.popleft())
        self._known.add(uid)
        self._order.append(uid)
        return True


class Inbox:
    """`adapters.mqtt.subscriptions.subscription.LiveReceiver` of one connection."""

    __slots__ = (
        "_backlog",
        "_backlog_bytes",
        "_env",
        "_host",
        "_recent",
        "_session",
        "counters",
        "delivering",
        "filters",
        "publisher",
        "rights",
        "subscriptions",
        "tenant",
        "traffic",
    )

    def __init__(
        self,
        env: Environment,
        host: MqttHost,
        session: Session,
        publisher: int,
        rights: Rights,
        traffic: TenantTraffic | None,
        delivering: Delivering,
    ) -> None:
        self._env = env
        self._host = host
        self._session = session
        self.publisher = publisher
        self.delivering = delivering
        """What limits what it gets."""
        self.rights = rights
        self.tenant = rights.principal.tenant
        self.counters = env.figures.of(self.tenant).counters
        self.traffic = traffic
        """Counters of its tenant; None if nothing is metered."""
        self.subscriptions: dict[str, Subscribed] = {}
        """By the text of the filter, as the client spells it."""
        self.filters = FilterTable(self.subscriptions)
        """The same, for what they match."""
        self._recent: RecentUids | None = None
        # (message, kind of frame, whether it is handed over as a retained one)
        self._backlog: deque[tuple[View, FrameKind, bool]] | None = None
        self._backlog_bytes = 0

    @property
    def overlapping(self) -> bool:
        """Whether two of the subscriptions can match one name."""
        return self.filters.overlapping

    # --- Live messages ----------------------------------------------------------------------

    def live(self, frame: PublishFrame, view: View, kind: FrameKind) -> None:
        """See `LiveReceiver.live`."""
        session, host, counters = self._session, self._host, self.counters
        if self._backlog is not None or host.holds_deliveries:
            self._keep(view, kind)
            return
        if session.uses_aliases and (session.credit > 0 or not view.qos_for(kind.qos)):
            self._send_by_alias(view, kind)
        else:
            sent = session.try_frame(frame, LIVE_TOKEN)
            if sent is _NO_CREDIT:
                self._keep(view, kind)
                return
            if sent is not _GONE:
                counters.too_large += 1
        counters.delivered += 1
        if self.delivering.account.limits_delivery:
            self.charge(view.size_bytes)
        if self.traffic is not None:
            self.traffic.deliveries.count(view.qos_for(kind.qos), view.size_bytes)
        host.write_soon()

    def charge(self, size_bytes: int) -> None:
        """A message was sent, and something is limited: the next one may have to wait."""
        self.delivering.delivered(1, size_bytes)
        delay_ms = self.delivering.delay_ms()
        if delay_ms:
            self._host.hold_deliveries(delay_ms)

    def live_single(self, view: View, subscription: Subscribed) -> None:
        """See `LiveReceiver.live_single`."""
        kind = subscription.kind
        if (kind.no_local and view.publisher == self.publisher) or self._backlog is _OVER:
            return
        if subscription.held is not None:
            if len(subscription.held) < self._env.settings.backlog_messages_max:
                subscription.held.append(view)
            else:
                self.counters.dropped_slow += 1
            return
        if self.filters.overlapping and not subscription.is_shared:
            matching = self._matching(view)
            if any(each.way is Way.STORED for each in matching):
                # The stored copy comes by the session's cursor, and stands for all.
                return
            if not self.is_first(view):
                return
            kind = self._combined(matching) or kind
        self.live(view.frame(kind, self._waited_ms(view)), view, kind)

    def release(self, subscription: Subscribed) -> None:
        """Sends what a subscription has held back."""
        held, subscription.held = subscription.held, None
        for view in held or ():
            self.live_single(view, subscription)

    def _send_by_alias(self, view: View, kind: FrameKind) -> None:
        sent = self._session.send_publish(
            view.topic.decode(),
            view.delivery_flags(kind),
            view.block(kind, self._waited_ms(view)),
            view.body,
            LIVE_TOKEN,
        )
        if not sent:
            self.counters.too_large += 1

    # --- Overlapping subscriptions ----------------------------------------------------------

    def _matching(self, view: View) -> list[Subscribed]:
        return [
            each
            for each in self.filters.matching(view.topic.decode())
            if not (each.kind.no_local and view.publisher == self.publisher)
        ]

    def _combined(self, matching: list[Subscribed]) -> FrameKind | None:
        if not matching:
            return None
        return combined([each.kind for each in matching], self._session.level)

    def kind_for(self, view: View, subscription: Subscribed) -> FrameKind:
        """What a delivery by `subscription` looks like, those it overlaps with considered."""
        if not self.overlapping or subscription.is_shared:
            return subscription.kind
        return self._combined(self._matching(view)) or subscription.kind

    def is_first(self, view: View) -> bool:
        """Whether no copy of the message has been sent lately."""
        if self._recent is None:
            self._recent = RecentUids()
        return self._recent.is_new(view.uid)

    # --- Retained messages ------------------------------------------------------------------

    def send_retained(self, found: Iterable[tuple[int, View]], kind: FrameKind) -> None:
        """Hands over retained messages: (age in ms, message), in their order."""
        now_ms = self._env.clock.wall_ms()
        for age_ms, view in found:
            # Its time counts from when the log took it.
            view.published_ms = now_ms - age_ms
            self._backlog_append(view, kind, is_retained=True)
            self.counters.retained_sent += 1
        self.drain()

    def figure(self, frame: PublishFrame) -> None:
        """Sends one of the server's figures, unless the client is behind."""
        if self._backlog is None and not self._host.holds_deliveries:
            self._session.try_frame(frame, LIVE_TOKEN)
            self._host.write_soon()

    # --- What waits -------------------------------------------------------------------------

    def _keep(self, view: View, kind: FrameKind) -> None:
        if self._backlog is _OVER:
            return
        waiting = len(self._backlog) if self._backlog is not None else 0
        full = waiting >= self._env.settings.backlog_messages_max
        if full or (waiting and self._backlog_bytes + len(view.body) > BACKLOG_BYTES_MAX):
            self.counters.dropped_slow += 1
            return
        self._backlog_append(view, kind, is_retained=False)

    def _backlog_append(self, view: View, kind: FrameKind, *, is_retained: bool) -> None:
        if self._backlog is _OVER:
            return
        if self._backlog is None:
            self._backlog = deque()
            self._host.lags()
        self._backlog.append((view, kind, is_retained))
        self._backlog_bytes += len(view.body)

    @property
    def backlog_bytes(self) -> int:
        """Bytes of the messages that wait."""
        return self._backlog_bytes

    def drain(self) -> None:
        """Sends what waits, as far as the client takes it now."""
        backlog = self._backlog
        if backlog is None or backlog is _OVER:
            return
        session, host, counters = self._session, self._host, self.counters
        now_ms = self._env.clock.wall_ms()
        while backlog and not host.holds_deliveries:
            view, kind, is_retained = backlog[0]
            if not view.expired(now_ms):
                waited_ms = max(0, now_ms - view.published_ms)
                if is_retained:
                    frame = view.retained_frame(kind, waited_ms)
                else:
                    frame = view.fresh_frame(kind, waited_ms)
                sent = session.try_frame(frame, LIVE_TOKEN)
                if sent is _NO_CREDIT:
                    break
                if sent is not _GONE:
                    counters.too_large += 1
                counters.delivered += 1
                if self.delivering.account.limits_delivery:
                    self.charge(view.size_bytes)
                if self.traffic is not None:
                    self.traffic.deliveries.count(view.qos_for(kind.qos), view.size_bytes)
            backlog.popleft()
            self._backlog_bytes -= len(view.body)
        if not backlog:
            self._backlog = None
            self._backlog_bytes = 0
        host.write_soon()

    def _waited_ms(self, view: View) -> int:
        return max(0, self._env.clock.wall_ms() - view.published_ms) if view.ttl_ms else 0

    def stop(self) -> None:
        """The connection is over: nothing is sent any more."""
        self._backlog, self._backlog_bytes = _OVER, 0

    def close(self) -> None:
        """Nobody hears for this connection any more; of very many subscriptions, some at a time."""
        self.stop()
        self._env.figures.forget(self)
        self._leave_some(list(self.subscriptions.values()))

    def _leave_some(self, left: list[Subscribed]) -> None:
        for subscription in left[-FILTERS_TOGETHER_MAX:]:
            self._env.live.leave(self, subscription)
        del left[-FILTERS_TOGETHER_MAX:]
        if left:
            self._env.soon(lambda: self._leave_some(left))
