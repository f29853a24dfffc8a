"""SUBSCRIBE and UNSUBSCRIBE, served one after the other: kernel first, then answer, then messages.

How a filter is served (`subscription.Way`):

    $share/g/f, and a topic f exists    member of consumer group g of that topic
    $share/g/f otherwise                a share of the tree, for sessions of any length
    QoS 1 or 2, and the session is kept the subscriber's own cursor
    everything else                     a watch; a session that is kept remembers it as a note

A SUBSCRIBE is answered when every filter is on disk where it has to be, and what is retained under
them has been read. SUBACK goes first, then the retained messages, then what comes live.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from adapters.mqtt import notes
from adapters.mqtt.codec.reason_codes import ReasonCode
from adapters.mqtt.events import SubscribeReceived, UnsubscribeReceived
from adapters.mqtt.refusals import reason_of
from adapters.mqtt.rights import may_subscribe
from adapters.mqtt.subscription import (
    Options,
    Subscribed,
    Way,
    decode_options,
    options_of,
    overlaps,
)
from adapters.mqtt.topic_filter import SHARE_PREFIX, parse_filter
from adapters.mqtt.views import View
from kernel.client import ConsumerSpec, PutTopic
from kernel.errors import Code, KernelError, NotLoaded
from kernel.model import GroupOptions
from kernel.tree import Subscription

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from adapters.base import Rights
    from adapters.mqtt.environment import Environment
    from adapters.mqtt.events import SubscriptionRequest
    from adapters.mqtt.inbox import Inbox
    from adapters.mqtt.session import Session
    from adapters.mqtt.stored_deliveries import StoredDeliveries
    from kernel.client import Session as KernelSession
    from kernel.model import TopicInfo
    from kernel.tree import Subscriber

_log = structlog.get_logger("weir.mqtt")

_SEND_ALWAYS: Final = 0
_SEND_IF_NEW: Final = 1


class _Outcome(NamedTuple):
    """What has become of one filter."""

    code: int
    subscribed: Subscribed | None = None
    retained: tuple[tuple[int, View], ...] = ()


class Requests:
    """The subscriptions of one connection, and the requests that change them."""

    __slots__ = (
        "_env",
        "_fail",
        "_inbox",
        "_is_working",
        "_kernel_session",
        "_persistent",
        "_rights",
        "_served",
        "_session",
        "_stored",
        "_subscriber",
        "_tenant",
        "_waiting",
        "_withheld",
    )

    def __init__(
        self,
        env: Environment,
        session: Session,
        rights: Rights,
        subscriber: Subscriber,
        inbox: Inbox,
        *,
        persistent: bool,
        kernel_session: Callable[[], KernelSession],
        stored: Callable[[], StoredDeliveries],
        served: Callable[[], None],
        fail: Callable[[ReasonCode, str], None],
    ) -> None:
        """`kernel_session` and `stored` make theirs when first asked; `served` is told that bytes
        are to be written, and that reading may go on.
        """
        self._env = env
        self._session = session
        self._rights = rights
        self._tenant = rights.principal.tenant
        self._subscriber = subscriber
        self._inbox = inbox
        self._persistent = persistent
        self._kernel_session = kernel_session
        self._stored = stored
        self._served = served
        self._fail = fail
        self._waiting: deque[SubscribeReceived | UnsubscribeReceived] | None = None
        self._is_working = False
        self._withheld: dict[str, Subscribed] | None = None
        """Subscriptions of the session that its user has not the rights to now."""

    def received(self, event: SubscribeReceived | UnsubscribeReceived) -> None:
        """A request came."""
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(event)
        if not self._is_working:
            self._is_working = True
            self._env.run(self._work())

    async def _work(self) -> None:
        try:
            while self._waiting and not self._session.is_over:
                event = self._waiting.popleft()
                if isinstance(event, SubscribeReceived):
                    await self._subscribe(event)
                else:
                    await self._unsubscribe(event)
        except KernelError as error:
            self._fail(reason_of(error), error.message)
        except Exception:  # noqa: BLE001 - a bug: logged, and an answer instead of silence
            _log.exception("internal error", where="subscriptions")
            self._fail(ReasonCode.UNSPECIFIED_ERROR, "internal error")
        finally:
            self._is_working = False
            # An empty deque is the largest thing that an idle connection would keep.
            self._waiting = None

    # --- Resuming ---------------------------------------------------------------------------

    async def resume(self) -> None:
        """Serve again what the session was subscribed to, as far as it still may be."""
        subscriber = self._subscriber
        stored = {_text_of(each): options for each, options in subscriber.subscriptions.items()}
        self._enter_again(stored, Way.STORED)
        live = notes.subscriptions_of(subscriber.notes, notes.LIVE_SUBSCRIPTION)
        self._enter_again(live, Way.LIVE)
        memberships = notes.subscriptions_of(subscriber.notes, notes.TOPIC_MEMBERSHIP)
        for text, encoded in memberships.items():
            await self._rejoin(self._again(text, encoded, Way.TOPIC))
        await self._env.tree.watched()
        for subscribed in self._inbox.subscriptions.values():
            self._open(subscribed)

    def _again(self, text: str, encoded: bytes, way: Way) -> Subscribed:
        level = self._session.level
        return Subscribed(text, parse_filter(text), decode_options(encoded), way, level)

    def _enter_again(self, kept: Mapping[str, bytes], way: Way) -> None:
        for text, encoded in kept.items():
            subscribed = self._again(text, encoded, way)
            if may_subscribe(self._rights, subscribed.filter, None):
                self._enter(subscribed)
            else:
                self._withhold(subscribed)

    def _withhold(self, subscribed: Subscribed) -> None:
        """The user may not have it any more. It stays part of the session, and what is kept for it
        is not lost if the right is given back; until the next connection it brings nothing.
        """
        if self._withheld is None:
            self._withheld = {}
        self._withheld[subscribed.text] = subscribed
        self._env.counters.withheld += 1

    async def _rejoin(self, subscribed: Subscribed) -> None:
        """Be a member of a topic's group again. A topic that is gone brings nothing; the client
        finds out as with every filter that nobody publishes to.
        """
        try:
            topic = await self._topic(subscribed.filter.pattern)
            if not may_subscribe(self._rights, subscribed.filter, topic):
                self._withhold(subscribed)
                return
            self._enter(subscribed)
            if topic is not None and not self._session.is_over:
                await self._join_group(topic, subscribed)
        except KernelError as error:
            self._enter(subscribed)
            _log.warning("group not joined again", filter=subscribed.text, reason=error.message)

    # --- SUBSCRIBE --------------------------------------------------------------------------

    async def _subscribe(self, event: SubscribeReceived) -> None:
        requests = event.undecided()
        if len(requests) == 1:
            outcomes = [await self._accept(requests[0], event)]
        else:
            outcomes = await asyncio.gather(*(self._accept(each, event) for each in requests))
        if self._session.is_over:
            return
        self._session.send_suback(event, [outcome.code for outcome in outcomes])
        for outcome in outcomes:
            if outcome.subscribed is not None:
                self._inbox.send_retained(outcome.retained, outcome.subscribed.kind)
                self._open(outcome.subscribed)
        self._served()

    async def _accept(self, request: SubscriptionRequest, event: SubscribeReceived) -> _Outcome:
        """One filter, up to where its messages may flow."""
        parsed = request.filter
        assert parsed is not None, "only decided ones have none"
        options = options_of(request, event.subscription_identifier, event.user_properties)
        existing = self._inbox.subscriptions.get(request.text)
        if existing is None and len(self._inbox.subscriptions) >= (
            self._env.settings.subscriptions_max
        ):
            return _Outcome(ReasonCode.QUOTA_EXCEEDED)
        try:
            topic = await self._topic(parsed.pattern) if parsed.share_name else None
            if not may_subscribe(self._rights, parsed, topic):
                return _Outcome(ReasonCode.NOT_AUTHORIZED)
            way = self._way(existing, options, topic, is_shared=bool(parsed.share_name))
            subscribed = Subscribed(request.text, parsed, options, way, self._session.level)
            retained = await self._set_up(existing, subscribed, topic, request.retain_handling)
        except KernelError as error:
            return _Outcome(reason_of(error))
        return _Outcome(options.qos, subscribed, retained)

    def _way(
        self,
        existing: Subscribed | None,
        options: Options,
        topic: TopicInfo | None,
        *,
        is_shared: bool,
    ) -> Way:
        if topic is not None:
            return Way.TOPIC
        if is_shared or (existing is not None and existing.way is Way.STORED):
            # What is stored already is not lost by a lower QoS ([MQTT-3.8.4-4]).
            return Way.STORED
        return Way.STORED if options.qos and self._persistent else Way.LIVE

    async def _set_up(
        self,
        existing: Subscribed | None,
        subscribed: Subscribed,
        topic: TopicInfo | None,
        retain_handling: int,
    ) -> tuple[tuple[int, View], ...]:
        """Subscribe at the kernel; what is retained under the filter. Raises KernelError."""
        if subscribed.way is Way.STORED:
            await self._subscriber.subscribe(
                _subscription_of(subscribed), subscribed.options.encoded()
            )
        elif subscribed.way is Way.TOPIC:
            assert topic is not None
            if existing is not None and existing.consumer is not None:
                subscribed.consumer = existing.consumer
            else:
                await self._join_group(topic, subscribed)
            await self._note(notes.TOPIC_MEMBERSHIP, subscribed)
        else:
            await self._note(notes.LIVE_SUBSCRIPTION, subscribed)
        # A SUBSCRIBE may name a filter twice; the later one counts.
        existing = existing or self._inbox.subscriptions.get(subscribed.text)
        if existing is not None:
            await self._replace(existing, subscribed)
        if self._session.is_over:
            return ()
        subscribed.held = []
        self._enter(subscribed)
        if subscribed.way is Way.LIVE:
            await self._env.tree.watched()
        wanted = retain_handling == _SEND_ALWAYS or (
            retain_handling == _SEND_IF_NEW and existing is None
        )
        if subscribed.is_shared or not wanted:
            return ()
        try:
            return await self._retained(subscribed)
        except KernelError:
            await self._withdraw(subscribed)
            raise

    async def _retained(self, subscribed: Subscribed) -> tuple[tuple[int, View], ...]:
        found = await self._env.tree.retained(
            self._tenant, subscribed.filter.pattern, self._env.settings.retained_per_filter_max
        )
        origins = self._env.client.origins
        return tuple((age_ms, View(slot, origins)) for age_ms, slot in found)

    async def _replace(self, existing: Subscribed, subscribed: Subscribed) -> None:
        """The same filter with other options takes over from the old one."""
        if existing.held:
            subscribed.held = existing.held
        self._env.live.leave(self._inbox, existing)
        if existing.way is Way.LIVE and subscribed.way is not Way.LIVE:
            await self._forget(notes.LIVE_SUBSCRIPTION, existing)
        elif existing.way is Way.STORED:
            self._stored().remove(_subscription_of(existing))

    def _enter(self, subscribed: Subscribed) -> None:
        """Into the table; a live one begins to hear, holding back while it must."""
        inbox = self._inbox
        inbox.subscriptions[subscribed.text] = subscribed
        if not inbox.overlapping and any(
            other is not subscribed and overlaps(other.filter, subscribed.filter)
            for other in inbox.subscriptions.values()
        ):
            self._become_overlapping()
        if subscribed.way is Way.LIVE:
            self._listen(subscribed)

    def _become_overlapping(self) -> None:
        self._inbox.overlapping = True
        for subscribed in self._inbox.subscriptions.values():
            if subscribed.pattern is not None:
                self._listen(subscribed)

    def _listen(self, subscribed: Subscribed) -> None:
        single = self._inbox.overlapping or subscribed.held is not None
        self._env.live.join(self._tenant, self._inbox, subscribed, single=single)

    def _open(self, subscribed: Subscribed) -> None:
        """Let its messages flow."""
        if self._inbox.subscriptions.get(subscribed.text) is not subscribed:
            return
        if subscribed.way is Way.STORED:
            self._stored().add(_subscription_of(subscribed), subscribed)
        elif subscribed.way is Way.TOPIC:
            if subscribed.consumer is not None:
                self._stored().attached(subscribed.consumer)
        else:
            self._inbox.release(subscribed)
            if not self._inbox.overlapping:
                self._listen(subscribed)

    # --- Topics of the kernel ---------------------------------------------------------------

    async def _topic(self, name: str) -> TopicInfo | None:
        """The topic that a share may join: one that other protocols see."""
        client = self._env.client
        try:
            topic = client.topic(self._tenant, name)
        except NotLoaded:
            await client.load(self._tenant, topics=(name,), routers=())
            topic = client.topic(self._tenant, name)
        if topic is None or topic.options.hidden or topic.options.owner is not None:
            return None
        return topic

    async def _join_group(self, topic: TopicInfo, subscribed: Subscribed) -> None:
        """Become a member of the group that a share names, which is made if it is new."""
        client, group = self._env.client, subscribed.filter.share_name
        if group not in topic.groups:
            made = await client.administer(
                PutTopic(topic.tenant, topic.name, topic.options, {group: GroupOptions()})
            )
            assert made is not None
            found = await self._topic(topic.name)
            if found is None:
                raise KernelError(Code.NOT_FOUND, f"topic {topic.name} is gone")
            topic = found
        spec = ConsumerSpec(topic, group, self._kernel_session(), tag=subscribed)
        subscribed.consumer = client.attach(spec, self._stored())

    # --- UNSUBSCRIBE ------------------------------------------------------------------------

    async def _unsubscribe(self, event: UnsubscribeReceived) -> None:
        codes = await asyncio.gather(*(self._end(text) for text in event.filters))
        if not self._session.is_over:
            self._session.send_unsuback(event, codes)
            self._served()

    async def _end(self, text: str) -> int:
        subscribed = self._inbox.subscriptions.get(text)
        if subscribed is None and self._withheld is not None:
            subscribed = self._withheld.pop(text, None)
        if subscribed is None:
            return ReasonCode.NO_SUBSCRIPTION_EXISTED
        try:
            await self._withdraw(subscribed)
        except KernelError as error:
            return reason_of(error)
        return ReasonCode.SUCCESS

    async def _withdraw(self, subscribed: Subscribed) -> None:
        """End a subscription. Raises KernelError; then it ends with the session."""
        self._inbox.subscriptions.pop(subscribed.text, None)
        self._env.live.leave(self._inbox, subscribed)
        if subscribed.way is Way.STORED:
            subscription = _subscription_of(subscribed)
            self._stored().remove(subscription)
            await self._subscriber.unsubscribe(subscription)
        elif subscribed.way is Way.TOPIC:
            if subscribed.consumer is not None:
                subscribed.consumer.cancel()
            await self._forget(notes.TOPIC_MEMBERSHIP, subscribed)
        else:
            await self._forget(notes.LIVE_SUBSCRIPTION, subscribed)

    # --- Notes ------------------------------------------------------------------------------

    async def _note(self, kind: bytes, subscribed: Subscribed) -> None:
        await self._change(kind + subscribed.text.encode(), subscribed.options.encoded())

    async def _forget(self, kind: bytes, subscribed: Subscribed) -> None:
        await self._change(kind + subscribed.text.encode(), None)

    async def _change(self, key: bytes, value: bytes | None) -> None:
        """A note, on disk when this returns; a session that is not kept has none."""
        if not self._persistent:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settle(error: KernelError | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        self._subscriber.note([(key, value)], settle)
        await done


def _subscription_of(subscribed: Subscribed) -> Subscription:
    return Subscription(subscribed.filter.pattern, subscribed.filter.share_name)


def _text_of(subscription: Subscription) -> str:
    if not subscription.share:
        return subscription.pattern
    return f"{SHARE_PREFIX}{subscription.share}/{subscription.pattern}"
