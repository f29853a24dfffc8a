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

from collections import deque
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import structlog

from adapters.base import RECHECK_STEP
from adapters.mqtt.access.refusals import reason_of
from adapters.mqtt.access.rights import may_subscribe
from adapters.mqtt.codec.reason_codes import ReasonCode
from adapters.mqtt.delivery.system_topics import ROOT
from adapters.mqtt.limits import FILTERS_TOGETHER_MAX
from adapters.mqtt.requests.session_subscriptions import (
    SubscribeOutcome,
    Subscriptions,
    Wanted,
    others_turn,
    sliced,
)
from adapters.mqtt.session.events import SubscribeReceived, UnsubscribeReceived
from adapters.mqtt.subscriptions.subscription import (
    Options,
    Subscribed,
    Way,
    options_of,
)
from kernel.common.errors import KernelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from adapters.base import Rights
    from adapters.mqtt.codec.topic_filter import TopicFilter
    from adapters.mqtt.delivery.inbox import Inbox
    from adapters.mqtt.delivery.session_deliveries import StoredDeliveries
    from adapters.mqtt.environment import Environment
    from adapters.mqtt.session.client_session import Session
    from adapters.mqtt.session.events import SubscriptionRequest
    from kernel.api.client import Session as KernelSession
    from kernel.api.model import TopicInfo
    from kernel.api.tree import Subscriber

_log = structlog.get_logger("weir.mqtt")

_E = TypeVar("_E", SubscribeReceived, UnsubscribeReceived)


class _Asked(NamedTuple):
    """A filter, and the SUBSCRIBE that it came in."""

    request: SubscriptionRequest
    event: SubscribeReceived


class Requests:
    """The subscriptions of one connection, and the requests that change them."""

    __slots__ = (
        "_env",
        "_fail",
        "_inbox",
        "_is_working",
        "_persistent",
        "_rights",
        "_served",
        "_session",
        "_subscriptions",
        "_waiting",
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
        self._inbox = inbox
        self._persistent = persistent
        self._subscriptions = Subscriptions(
            env,
            session,
            rights,
            subscriber,
            inbox,
            persistent=persistent,
            kernel_session=kernel_session,
            stored=stored,
        )
        self._served = served
        self._fail = fail
        self._waiting: deque[SubscribeReceived | UnsubscribeReceived] | None = None
        self._is_working = False

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
                if isinstance(self._waiting[0], SubscribeReceived):
                    await self._subscribe(self._next(SubscribeReceived))
                else:
                    await self._unsubscribe(self._next(UnsubscribeReceived))
                await others_turn()
        except KernelError as error:
            self._fail(reason_of(error), error.message)
        except Exception:  # noqa: BLE001 - a bug: logged, and an answer instead of silence
            _log.exception("internal error", where="subscriptions")
            self._fail(ReasonCode.UNSPECIFIED_ERROR, "internal error")
        finally:
            self._is_working = False
            # An empty deque is the largest thing that an idle connection would keep.
            self._waiting = None

    def _next(self, kind: type[_E]) -> list[_E]:
        """The requests of one kind that are next, as many as may be served together."""
        waiting = self._waiting
        assert waiting is not None
        found: list[_E] = []
        filters = 0
        while waiting and isinstance(event := waiting[0], kind):
            filters += event.filter_count
            if found and filters > FILTERS_TOGETHER_MAX:
                break
            found.append(event)
            waiting.popleft()
        return found

    # --- Resuming ---------------------------------------------------------------------------

    async def resume(self) -> None:
        """Serve again what the session was subscribed to; what the client asks for meanwhile comes
        after that.
        """
        self._is_working = True
        try:
            await self._subscriptions.resume()
        finally:
            self._is_working = False
        if self._waiting and not self._session.is_over:
            self._is_working = True
            self._env.run(self._work())

    # --- Rights that are withdrawn ----------------------------------------------------------

    def recheck(self) -> Iterator[None]:
        """`adapters.base.Holder`: the first subscription without right ends the connection."""
        for seen, subscribed in enumerate(list(self._inbox.subscriptions.values()), start=1):
            if not seen % RECHECK_STEP:
                yield
            if self._session.is_over:
                return
            current = self._inbox.subscriptions.get(subscribed.text)
            if current is subscribed and not self._may_keep(subscribed):
                self._withdrawn(subscribed.text)
                return

    def _may_keep(self, subscribed: Subscribed) -> bool:
        return may_subscribe(self._rights, subscribed.filter, subscribed.topic)

    def _withdrawn(self, text: str) -> None:
        self._env.counters.revoked += 1
        self._fail(ReasonCode.NOT_AUTHORIZED, f"the right to consume {text} was withdrawn")

    # --- SUBSCRIBE --------------------------------------------------------------------------

    async def _subscribe(self, events: Sequence[SubscribeReceived]) -> None:
        asked = [_Asked(request, event) for event in events for request in event.undecided()]
        outcomes: list[SubscribeOutcome] = []
        for some in sliced(asked, lambda each: each.request.text):
            if outcomes:
                await others_turn()
            outcomes += await self._accept(some)
            if self._session.is_over:
                return
        start = 0
        for event in events:
            own = outcomes[start : start + len(event.undecided())]
            start += len(own)
            self._session.send_suback(event, [outcome.code for outcome in own])
            for outcome in own:
                if outcome.subscribed is not None and outcome.retained:
                    self._inbox.send_retained(outcome.retained, outcome.subscribed.kind)
        self._served()
        await self._subscriptions.open(
            [each.subscribed for each in outcomes if each.subscribed is not None]
        )
        self._served()

    async def _accept(self, asked: Sequence[_Asked]) -> list[SubscribeOutcome]:
        """Filters, up to where their messages may flow."""
        filters = [each.request.filter for each in asked if each.request.filter is not None]
        shared = [each.pattern for each in filters if each.share_name]
        topics = await self._subscriptions.topics(shared) if shared else {}
        room = self._env.settings.subscriptions_max - len(self._inbox.subscriptions)
        outcomes: list[SubscribeOutcome] = []
        wanted: list[Wanted] = []
        for place, (request, event) in enumerate(asked):
            existing = self._inbox.subscriptions.get(request.text)
            code = 0
            topic = None
            parsed = request.filter
            assert parsed is not None, "only decided ones have none"
            if parsed.share_name:
                found = topics[parsed.pattern]
                if isinstance(found, KernelError):
                    code = int(reason_of(found))
                else:
                    topic = found
            if existing is None and not code and room <= 0:
                code = ReasonCode.QUOTA_EXCEEDED
            if parsed.share_name and parsed.levels[0] == ROOT:
                code = ReasonCode.TOPIC_FILTER_INVALID  # each who may see figures sees them all
            if not code and not may_subscribe(self._rights, parsed, topic):
                code = ReasonCode.NOT_AUTHORIZED
            if code:
                outcomes.append(SubscribeOutcome(code))
                continue
            options = options_of(request, event.subscription_identifier, event.user_properties)
            way = self._way(existing, options, topic, parsed)
            subscribed = Subscribed(request.text, parsed, options, way, self._session.level)
            subscribed.topic = topic
            room -= existing is None
            wanted.append(Wanted(place, request, subscribed, existing, topic))
            outcomes.append(SubscribeOutcome(options.qos, subscribed))
        for place, error in (await self._subscriptions.set_up(wanted, outcomes)).items():
            outcomes[place] = SubscribeOutcome(reason_of(error))
        for each in wanted:
            if not self._may_keep(each.subscribed):
                # Withdrawn while the kernel was awaited: a recheck may have missed it.
                self._withdrawn(each.request.text)
                break
        return outcomes

    def _way(
        self,
        existing: Subscribed | None,
        options: Options,
        topic: TopicInfo | None,
        parsed: TopicFilter,
    ) -> Way:
        if parsed.levels[0] == ROOT:
            return Way.SYSTEM
        if topic is not None:
            return Way.TOPIC
        if parsed.share_name or (existing is not None and existing.way is Way.STORED):
            # What is stored already is not lost by a lower QoS ([MQTT-3.8.4-4]).
            return Way.STORED
        return Way.STORED if options.qos and self._persistent else Way.LIVE

    # --- UNSUBSCRIBE ------------------------------------------------------------------------

    async def _unsubscribe(self, events: Sequence[UnsubscribeReceived]) -> None:
        codes: list[int] = []
        texts = [text for event in events for text in event.filters]
        for some in sliced(texts, str):
            if codes:
                await others_turn()
            known = [self._subscriptions.known(text) for text in some]
            failed = await self._subscriptions.withdraw(
                [each for each in known if each is not None]
            )
            for text, each in zip(some, known, strict=True):
                if each is None:
                    codes.append(ReasonCode.NO_SUBSCRIPTION_EXISTED)
                else:
                    codes.append(reason_of(failed[text]) if text in failed else ReasonCode.SUCCESS)
            if self._session.is_over:
                return
        start = 0
        for event in events:
            end = start + len(event.filters)
            self._session.send_unsuback(event, codes[start:end])
            start = end
        self._served()
