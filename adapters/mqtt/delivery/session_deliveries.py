"""Deliveries of what the kernel stores for a session: packet identifiers, settlement, resuming.

A delivery is a lease of the kernel's; its token says which (`part + 1 << 48 | offset`). It is
acknowledged there when the client has ended it:

    QoS 0   as soon as it is sent
    QoS 1   at PUBACK
    QoS 2   note "sent" on disk → PUBLISH → PUBREC → note "released" on disk → ack on disk → PUBREL
            → PUBCOMP → note removed

What the client had not ended comes back as a redelivery. A session that goes on knows by its notes
which packet identifier it had; one that PUBREC came for is acknowledged and not sent again.
What several filters of the session match comes by several queues: see `copies`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from adapters.mqtt.codec.encoder import marked_duplicate
from adapters.mqtt.codec.reason_codes import ReasonCode
from adapters.mqtt.delivery import notes
from adapters.mqtt.delivery.copies import Copies
from adapters.mqtt.delivery.inbox import LIVE_TOKEN
from adapters.mqtt.delivery.notes import DeliveryProgress
from adapters.mqtt.limits import KEPT_IDS_MAX
from adapters.mqtt.messages.views import View
from adapters.mqtt.session.outbound import InFlight
from adapters.mqtt.subscriptions.subscription import Subscribed
from kernel.api.client import Settlement
from kernel.api.message import HEADER_BYTES
from kernel.common.ids import QueueId, topic_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from adapters.mqtt.codec.encoder import PublishFrame
    from adapters.mqtt.delivery.inbox import Inbox
    from adapters.mqtt.environment import Environment
    from adapters.mqtt.host import MqttHost
    from adapters.mqtt.messages.views import FrameKind
    from adapters.mqtt.reporting.traffic import Deliveries as DeliveryCounters
    from adapters.mqtt.session.client_session import Session
    from adapters.mqtt.session.events import DeliveriesCompleted, DeliveriesReceived
    from kernel.api.client import Consumer, Deliveries
    from kernel.api.client import Session as KernelSession
    from kernel.api.tree import Subscriber, SubscriberConsumer, Subscription
    from kernel.common.errors import KernelError

_PART_SHIFT: Final = 48
_OFFSET_MASK: Final = (1 << _PART_SHIFT) - 1
_ACK: Final = Settlement.ACK


class _Part(NamedTuple):
    """A consumer that deliveries came from, and its queue."""

    consumer: Consumer
    queue: int
    origin: Consumer | None
    """Whose credit its deliveries use: its own, or (None) that of all subscriptions together."""
    counters: DeliveryCounters | None


class _Waiting(NamedTuple):
    """A delivery for which the client has no room yet."""

    view: View
    kind: FrameKind
    token: int
    is_repeat: bool


class StoredDeliveries:
    """`kernel.api.client.ConsumerSink` and `SettleSink` of one connection."""

    __slots__ = (
        "_consumer",
        "_copies",
        "_credit_due",
        "_env",
        "_exchanges",
        "_fail",
        "_granted_soon",
        "_host",
        "_inbox",
        "_kept",
        "_kept_by_uid",
        "_kernel_session",
        "_numbers",
        "_parts",
        "_persistent",
        "_released",
        "_released_uids",
        "_resent",
        "_session",
        "_subscriber",
        "_waiting",
        "_window",
    )

    def __init__(
        self,
        env: Environment,
        host: MqttHost,
        session: Session,
        inbox: Inbox,
        subscriber: Subscriber,
        kernel_session: KernelSession,
        *,
        persistent: bool,
        fail: Callable[[ReasonCode, str], None],
    ) -> None:
        self._env = env
        self._host = host
        self._session = session
        self._inbox = inbox
        self._subscriber = subscriber
        self._kernel_session = kernel_session
        self._persistent = persistent
        self._fail = fail
        # The whole of it: what an earlier connection has left in flight holds it up only for now.
        self._window = session.delivery_window
        self._consumer: SubscriberConsumer | None = None
        self._parts: list[_Part] = []
        # Consumer → place in `_parts`.
        self._numbers: dict[Consumer, int] = {}
        # (queue, offset) → what an earlier connection sent, not yet delivered to this one.
        self._kept: dict[tuple[int, int], notes.Delivery] = {}
        self._released: set[tuple[int, int]] | None = None
        # The same by the message's uid, where another queue may bring it first.
        self._kept_by_uid: dict[notes.Uid, tuple[int, int]] | None = None
        self._released_uids: set[notes.Uid] | None = None
        # Made when subscriptions overlap.
        self._copies: Copies | None = None
        # Identifiers of QoS 1 deliveries that were sent again here: their notes are out of date.
        self._resent: list[int] | None = None
        # Token → packet identifier, of QoS 2 deliveries that have a note.
        self._exchanges: dict[int, int] = {}
        self._waiting: deque[_Waiting] | None = None
        # Credit to be given back at the end of the turn: of all subscriptions, and of memberships.
        self._credit_due: dict[Consumer | None, int] = {}
        self._granted_soon = False

    # --- Resuming ---------------------------------------------------------------------------

    def resume(self, sent: Sequence[notes.Delivery]) -> None:
        """Take over what an earlier connection had in flight."""
        for each in sent:
            place = (each.queue, each.offset)
            if each.progress is DeliveryProgress.RELEASED:
                if self._released is None:
                    self._released = set()
                self._released.add(place)
                if each.uid is not None:
                    self._released_uids = self._released_uids or set()
                    self._released_uids.add(each.uid)
                self._exchanges[-each.packet_id] = each.packet_id
            else:
                self._kept[place] = each
                if each.uid is not None:
                    self._kept_by_uid = self._kept_by_uid or {}
                    self._kept_by_uid[each.uid] = place
        if len(self._kept) > KEPT_IDS_MAX:
            self._forget_at_least_once()
        self._session.keep_ids(each.packet_id for each in self._kept.values())

    def _forget_at_least_once(self) -> None:
        """Too many identifiers are kept: what has QoS 1 comes again, marked, with another one."""
        forgotten = {
            place: each.packet_id
            for place, each in self._kept.items()
            if each.progress is DeliveryProgress.AT_LEAST_ONCE
        }
        for place in forgotten:
            del self._kept[place]
        self._resent = list(forgotten.values())

    @staticmethod
    def released(sent: Sequence[notes.Delivery]) -> list[InFlight]:
        """The deliveries whose PUBREL is to be sent again, for `Session.accept`."""
        return [
            InFlight(each.packet_id, -each.packet_id, 2, released=True)
            for each in sent
            if each.progress is DeliveryProgress.RELEASED
        ]

    # --- Subscriptions ----------------------------------------------------------------------

    def add(self, subscription: Subscription, subscribed: Subscribed) -> None:
        """Take what one of the subscriber's subscriptions brings."""
        if self._consumer is None:
            self._consumer = self._subscriber.consumer(self._kernel_session, self)
            self._consumer.add(subscription, subscribed)
            self._consumer.grant(self._window)
        else:
            self._consumer.add(subscription, subscribed)

    def remove(self, subscription: Subscription) -> None:
        """Take no more of it."""
        if self._consumer is not None:
            self._consumer.remove(subscription)

    def attached(self, consumer: Consumer) -> None:
        """A membership in a topic's group brings messages too."""
        consumer.grant(self._window)

    # --- Deliveries -------------------------------------------------------------------------

    def deliver(self, consumer: Consumer, deliveries: Deliveries) -> None:
        """See `ConsumerSink`."""
        if self._session.is_over:
            return  # it goes back when the kernel's session is closed
        subscribed = consumer.tag
        assert isinstance(subscribed, Subscribed)
        part = self._numbers.get(consumer)
        if part is None:
            part = self._numbers[consumer] = len(self._parts)
            self._parts.append(
                _Part(
                    consumer, deliveries.queue, subscribed.consumer, self._counters_of(subscribed)
                )
            )
        delivering = self._inbox.delivering
        if delivering.account.has_topics:
            size = sum(map(len, deliveries.slots)) - HEADER_BYTES * len(deliveries.slots)
            topic = topic_of(QueueId(deliveries.queue))
            delivering.of_topic(topic, len(deliveries.slots), size)
        base = part + 1 << _PART_SHIFT
        attempts = deliveries.attempts
        ended: list[int] = []
        fresh: list[tuple[int, PublishFrame, int]] = []
        fallback = subscribed.filter.pattern if subscribed.consumer is not None else ""
        for position, offset in enumerate(deliveries.offsets):
            view = View(deliveries.slots[position], self._env.client.origins, fallback)
            kind = self._wanted(view, subscribed, deliveries.queue, base | offset)
            if kind is None:
                if not self._held(view, subscribed, base | offset):
                    ended.append(base | offset)
                continue
            repeat = attempts is not None and attempts[position] > 1
            item = _Waiting(view, kind, base | offset, repeat)
            if self._waiting is not None or self._must_wait(item):
                self._wait(item)
            else:
                self._send(item, ended, fresh)
        self._finish(ended, fresh)

    def _counters_of(self, subscribed: Subscribed) -> DeliveryCounters | None:
        traffic = self._inbox.traffic
        if traffic is None:
            return None
        if subscribed.consumer is None:
            return traffic.deliveries
        return traffic.of_group(subscribed.filter.pattern, subscribed.filter.share_name)

    def consumer_ended(self, consumer: Consumer, error: KernelError) -> None:
        """See `ConsumerSink`: the topic of a membership is gone, and with it what was leased."""
        self._numbers.pop(consumer, None)

    def _wanted(
        self, view: View, subscribed: Subscribed, queue: int, token: int
    ) -> FrameKind | None:
        """What the delivery looks like; None: the client has it, or must not have it."""
        if self._released and (place := (queue, token & _OFFSET_MASK)) in self._released:
            self._released.discard(place)
            return None
        inbox = self._inbox
        kind = subscribed.kind
        if kind.no_local and view.publisher == inbox.publisher:
            return None
        if view.ttl_ms and view.expired(self._env.clock.wall_ms()):
            return None
        if inbox.overlapping and not subscribed.is_shared:
            uid = view.uid
            if self._released_uids is not None and uid in self._released_uids:
                return None
            if self._copies is None:
                self._copies = Copies()
            # The one asks what has not ended, however many there were since; the other what has.
            if uid in self._copies or not inbox.is_first(view):
                return None
            self._copies.begin(uid, token)
            return inbox.kind_for(view, subscribed)
        return kind

    def _held(self, view: View, subscribed: Subscribed, token: int) -> bool:
        """Whether what is not wanted is settled later, with a copy that is on its way."""
        copies = self._copies
        if copies is None or subscribed.is_shared or view.uid not in copies:
            return False
        if copies.hold(view.uid, token):
            self._note_credit(token)
        return True

    def _wait(self, item: _Waiting) -> None:
        if self._waiting is None:
            self._waiting = deque()
            self._host.lags()
        self._waiting.append(item)

    @property
    def waiting_bytes(self) -> int:
        """Of deliveries that wait: counted when asked."""
        return sum(item.view.size_bytes for item in self._waiting or ())

    def _must_wait(self, item: _Waiting) -> bool:
        if self._host.holds_deliveries:
            return True
        return item.view.qos_for(item.kind.qos) > 0 and self._session.credit <= 0

    def _send(
        self, item: _Waiting, ended: list[int], fresh: list[tuple[int, PublishFrame, int]]
    ) -> None:
        """One delivery for which there is room. QoS 2 ones that need a note first go to `fresh`."""
        view, kind, token, is_repeat = item
        session = self._session
        waited_ms = 0
        if view.ttl_ms:
            waited_ms = max(0, self._env.clock.wall_ms() - view.published_ms)
        self._inbox.counters.delivered += 1
        if self._inbox.delivering.account.limits_delivery:
            self._inbox.charge(view.size_bytes)
        counters = self._parts[(token >> _PART_SHIFT) - 1].counters
        if counters is not None:
            counters.count(view.qos_for(kind.qos), view.size_bytes)
        if self._kept and (kept := self._take_kept(token)) is not None:
            self._send_again(kept, view, kind, token, waited_ms)
            return
        qos = view.qos_for(kind.qos)
        frame = view.frame(kind, waited_ms)
        if not session.fits(frame):
            # For this client it counts as delivered ([MQTT-3.1.2-25]).
            self._inbox.counters.too_large += 1
            ended.append(token)
        elif qos == 2 and self._persistent:
            fresh.append((session.reserve(token, 2), frame, token))
        else:
            if is_repeat and qos == 1:
                frame = marked_duplicate(frame)
            session.send_frames((frame,), (token,))
            if not qos:
                ended.append(token)

    def _take_kept(self, token: int) -> notes.Delivery | None:
        """What an earlier connection sent of that message, by whichever queue it came."""
        kept = self._kept.pop(self._place(token), None)
        if kept is None and self._kept_by_uid is not None and (uid := self._uid(token)) is not None:
            place = self._kept_by_uid.get(uid)
            kept = self._kept.pop(place, None) if place is not None else None
        return kept

    def _send_again(
        self, kept: notes.Delivery, view: View, kind: FrameKind, token: int, waited_ms: int
    ) -> None:
        """What an earlier connection sent, by its old identifier and with its old QoS."""
        qos = 2 if kept.progress is DeliveryProgress.EXACTLY_ONCE else 1
        frame = view.frame(kind._replace(qos=qos), waited_ms)
        if view.qos_for(qos) != qos or not self._session.fits(frame):
            if kept.progress is DeliveryProgress.EXACTLY_ONCE:
                self._exchanges[-kept.packet_id] = kept.packet_id
                self._session.release_kept(kept.packet_id, -kept.packet_id)
            else:
                self._session.drop_kept(kept.packet_id)
                self._subscriber.note([notes.delivered(kept.packet_id)])
            self._settle([token])
            return
        if qos == 2:
            self._exchanges[token] = kept.packet_id
        else:
            if self._resent is None:
                self._resent = []
            self._resent.append(kept.packet_id)
        self._session.send_kept(kept.packet_id, token, frame)

    def _finish(self, ended: list[int], fresh: list[tuple[int, PublishFrame, int]]) -> None:
        if ended:
            self._settle(ended)
        if fresh:
            changes: list[notes.Change] = []
            for packet_id, _, token in fresh:
                self._exchanges[token] = packet_id
                changes.append(self._note_of(packet_id, DeliveryProgress.EXACTLY_ONCE, token))
            self._subscriber.note(changes, lambda error: self._noted(fresh, error))
        self._host.write_soon()

    def _noted(
        self, fresh: Sequence[tuple[int, PublishFrame, int]], error: KernelError | None
    ) -> None:
        if self._session.is_over:
            return
        if error is not None:
            self._fail(ReasonCode.QUOTA_EXCEEDED, error.message)
            return
        for packet_id, frame, _ in fresh:
            self._session.send_reserved(packet_id, frame)
        self._host.write_soon()

    # --- What the client answers ------------------------------------------------------------

    def received(self, event: DeliveriesReceived) -> None:
        """PUBRECs came: PUBREL once that and the acknowledgement are on disk."""
        at_once: list[int] = []
        noted: list[tuple[int, int]] = []
        for packet_id, token in zip(event.packet_ids, event.tokens, strict=True):
            if token != LIVE_TOKEN and self._persistent:
                noted.append((packet_id, token))
            else:
                at_once.append(packet_id)
        self._session.receipts_committed(at_once)
        if noted:
            changes = [
                self._note_of(packet_id, DeliveryProgress.RELEASED, token)
                for packet_id, token in noted
            ]
            self._subscriber.note(changes, lambda error: self._receipts_noted(noted, error))

    def _receipts_noted(self, noted: Sequence[tuple[int, int]], error: KernelError | None) -> None:
        if self._session.is_over:
            return
        if error is not None:
            self._fail(ReasonCode.QUOTA_EXCEEDED, error.message)
            return
        if self._copies is not None:
            self._settle_copies([token for _, token in noted])
        for part, pairs in self._by_part(noted).items():
            self._env.client.settle(
                self._parts[part].consumer,
                _ACK,
                [token & _OFFSET_MASK for _, token in pairs],
                sink=self,
                tag=[packet_id for packet_id, _ in pairs],
            )

    def settled(self, tag: object, failures: Mapping[int, KernelError] | None) -> None:
        """See `SettleSink`. A lease that was lost meanwhile changes nothing: the note says that
        the client has the message.
        """
        assert isinstance(tag, list)
        if not self._session.is_over:
            self._session.receipts_committed(tag)
            self._host.write_soon()

    def completed(self, event: DeliveriesCompleted) -> None:
        """PUBACKs, PUBCOMPs and refusals came."""
        ended: list[int] = []
        removed: list[notes.Change] = []
        for token in event.tokens:
            packet_id = self._exchanges.pop(token, None) if self._exchanges else None
            if packet_id is not None:
                removed.append(notes.delivered(packet_id))
                if token > 0 and token not in event.refused:
                    # Acknowledged at PUBREC.
                    self._note_credit(token)
                    continue
            if token > 0:
                ended.append(token)
        if removed:
            self._subscriber.note(removed)
        if ended:
            self._settle(ended)
        self.drain()

    def drain(self) -> None:
        """Sends what waits, as far as there is room now."""
        if self._session.is_over:
            return
        waiting = self._waiting
        ended: list[int] = []
        fresh: list[tuple[int, PublishFrame, int]] = []
        if waiting is not None:
            while waiting and not self._must_wait(waiting[0]):
                self._send(waiting.popleft(), ended, fresh)
            if not waiting:
                self._waiting = None
        if ended or fresh:
            self._finish(ended, fresh)
        if self._credit_due:
            self._grant_soon()

    # --- Settlement and credit --------------------------------------------------------------

    def _place(self, token: int) -> tuple[int, int]:
        return self._parts[(token >> _PART_SHIFT) - 1].queue, token & _OFFSET_MASK

    def _uid(self, token: int) -> notes.Uid | None:
        """Of a message that another queue may bring too."""
        return self._copies.uid_of(token) if self._copies is not None else None

    def _note_of(self, packet_id: int, progress: DeliveryProgress, token: int) -> notes.Change:
        return notes.delivery(packet_id, progress, *self._place(token), self._uid(token))

    @staticmethod
    def _by_part(noted: Sequence[tuple[int, int]]) -> dict[int, list[tuple[int, int]]]:
        found: dict[int, list[tuple[int, int]]] = {}
        for pair in noted:
            found.setdefault((pair[1] >> _PART_SHIFT) - 1, []).append(pair)
        return found

    def _settle_copies(self, tokens: Sequence[int]) -> None:
        """What is held with deliveries that have ended is settled before them."""
        copies = self._copies
        assert copies is not None
        by_part: dict[int, list[int]] = {}
        for token in tokens:
            for copy in copies.end(token):
                by_part.setdefault((copy >> _PART_SHIFT) - 1, []).append(copy & _OFFSET_MASK)
                if copies.returns_credit():
                    self._note_credit(copy)
        for part, offsets in by_part.items():
            self._env.client.settle(self._parts[part].consumer, _ACK, offsets)

    def _settle(self, tokens: Sequence[int]) -> None:
        if self._copies is not None:
            self._settle_copies(tokens)
        by_part: dict[int, list[int]] = {}
        for token in tokens:
            by_part.setdefault((token >> _PART_SHIFT) - 1, []).append(token & _OFFSET_MASK)
            self._note_credit(token)
        for part, offsets in by_part.items():
            self._env.client.settle(self._parts[part].consumer, _ACK, offsets)

    def _note_credit(self, token: int) -> None:
        origin = self._parts[(token >> _PART_SHIFT) - 1].origin
        self._credit_due[origin] = self._credit_due.get(origin, 0) + 1
        self._grant_soon()

    def _grant_soon(self) -> None:
        """Credit is given in a turn of its own: deliveries may come from inside `grant`."""
        if not self._granted_soon:
            self._granted_soon = True
            self._env.soon(self._grant)

    def _grant(self) -> None:
        self._granted_soon = False
        if self._session.is_over or self._host.holds_deliveries:
            # `drain` comes again when the client reads.
            return
        owed, self._credit_due = self._credit_due, {}
        for origin, count in owed.items():
            if origin is not None:
                origin.grant(count)
            elif self._consumer is not None:
                self._consumer.grant(count)

    def close(self) -> list[notes.Change]:
        """The connection is over: the notes that change with it."""
        if self._consumer is not None:
            self._consumer.cancel()
        self._waiting = None
        if not self._persistent:
            return []
        # An identifier that has become an exchange's since has that exchange's note by now.
        in_use = set(self._exchanges.values())
        ended = (each for each in self._resent or () if each not in in_use)
        changes = dict(notes.delivered(packet_id) for packet_id in ended)
        for each in self._session.in_flight():
            if each.qos == 1 and each.token > 0:
                key, value = self._note_of(
                    each.packet_id, DeliveryProgress.AT_LEAST_ONCE, each.token
                )
                changes[key] = value
        return list(changes.items())
