"""The subscriptions of one session: made, replaced, served again and ended, several at a time.

`requests` decides which filters may be served; here they are. A session may have ten thousand, and
ask for all of them at once: `sliced` takes them apart, and between two parts everybody else has a
turn.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import structlog

from adapters.mqtt.access.rights import may_subscribe
from adapters.mqtt.codec.topic_filter import SHARE_PREFIX, parse_filter
from adapters.mqtt.delivery import notes
from adapters.mqtt.delivery.system_topics import ROOT
from adapters.mqtt.limits import FILTER_CHARACTERS_TOGETHER_MAX, FILTERS_TOGETHER_MAX
from adapters.mqtt.messages.views import View
from adapters.mqtt.subscriptions.subscription import Subscribed, Way, decode_options
from kernel.api.client import ConsumerSpec, PutTopic
from kernel.api.model import GroupOptions
from kernel.api.tree import Subscription
from kernel.common.errors import Code, KernelError, NotLoaded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from adapters.base import Rights
    from adapters.mqtt.delivery.inbox import Inbox
    from adapters.mqtt.delivery.session_deliveries import StoredDeliveries
    from adapters.mqtt.environment import Environment
    from adapters.mqtt.session.client_session import Session
    from adapters.mqtt.session.events import SubscriptionRequest
    from kernel.api.client import Session as KernelSession
    from kernel.api.model import TopicInfo
    from kernel.api.tree import Subscriber

_log = structlog.get_logger("weir.mqtt")

_T = TypeVar("_T")

_SEND_ALWAYS: Final = 0
_SEND_IF_NEW: Final = 1


class SubscribeOutcome(NamedTuple):
    """What has become of one filter."""

    code: int
    subscribed: Subscribed | None = None
    retained: tuple[tuple[int, View], ...] = ()


class Wanted(NamedTuple):
    """A filter that may be served."""

    place: int
    """Among those that are set up together."""
    request: SubscriptionRequest
    subscribed: Subscribed
    existing: Subscribed | None
    """What the session has of the same filter."""
    topic: TopicInfo | None


class Subscriptions:
    """What one connection is subscribed to, at the kernel and in its inbox."""

    __slots__ = (
        "_env",
        "_inbox",
        "_kernel_session",
        "_persistent",
        "_rights",
        "_session",
        "_stored",
        "_subscriber",
        "_tenant",
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
    ) -> None:
        """`kernel_session` and `stored` make theirs when first asked."""
        self._env = env
        self._session = session
        self._rights = rights
        self._tenant = rights.principal.tenant
        self._subscriber = subscriber
        self._inbox = inbox
        self._persistent = persistent
        self._kernel_session = kernel_session
        self._stored = stored
        self._withheld: dict[str, Subscribed] | None = None
        """Subscriptions of the session that its user has not the rights to now."""

    def known(self, text: str) -> Subscribed | None:
        """The subscription of a filter that is about to be ended."""
        known = self._inbox.subscriptions.get(text)
        if known is None and self._withheld is not None:
            known = self._withheld.pop(text, None)
        return known

    # --- Resuming ---------------------------------------------------------------------------

    async def resume(self) -> None:
        """Serve again what the session was subscribed to, as far as it still may be."""
        subscriber, level = self._subscriber, self._session.level
        kept = [
            (_text_of(each), encoded, Way.STORED)
            for each, encoded in subscriber.subscriptions.items()
        ]
        for kind, way in ((notes.LIVE_SUBSCRIPTION, Way.LIVE), (notes.TOPIC_MEMBERSHIP, Way.TOPIC)):
            known = notes.subscriptions_of(subscriber.notes, kind)
            kept += [(text, encoded, way) for text, encoded in known.items()]
        for some in sliced(kept, lambda each: each[0]):
            members: list[Subscribed] = []
            for text, encoded, way in some:
                options = decode_options(encoded)
                parsed = parse_filter(text)
                if way is Way.LIVE and parsed.levels[0] == ROOT:
                    way = Way.SYSTEM  # noqa: PLW2901 - its note is one of a live subscription
                subscribed = Subscribed(text, parsed, options, way, level)
                if way is Way.TOPIC:
                    members.append(subscribed)
                elif may_subscribe(self._rights, subscribed.filter, None):
                    self._enter(subscribed)
                else:
                    self._withhold(subscribed)
            if members:
                await self._rejoin(members)
            await others_turn()
            if self._session.is_over:
                return
        await self._env.tree.watched()
        await self.open(list(self._inbox.subscriptions.values()))

    def _withhold(self, subscribed: Subscribed) -> None:
        """The user may not have it any more. It stays part of the session, and what is kept for it
        is not lost if the right is given back; until the next connection it brings nothing.
        """
        if self._withheld is None:
            self._withheld = {}
        self._withheld[subscribed.text] = subscribed
        self._inbox.counters.withheld += 1

    async def _rejoin(self, members: Sequence[Subscribed]) -> None:
        """Be a member of topics' groups again. A topic that is gone brings nothing; the client
        finds out as with every filter that nobody publishes to.
        """
        topics = await self.topics([each.filter.pattern for each in members])
        for subscribed in members:
            found = topics[subscribed.filter.pattern]
            topic = subscribed.topic = None if isinstance(found, KernelError) else found
            if topic is found and not may_subscribe(self._rights, subscribed.filter, topic):
                self._withhold(subscribed)
                continue
            self._enter(subscribed)
            try:
                if isinstance(found, KernelError):
                    raise found
                if topic is not None and not self._session.is_over:
                    await self._join_group(topic, subscribed)
            except KernelError as error:
                text = subscribed.text
                _log.warning("group not joined again", filter=text, reason=error.message)

    # --- Making -----------------------------------------------------------------------------

    async def set_up(
        self, wanted: Sequence[Wanted], outcomes: list[SubscribeOutcome]
    ) -> dict[int, KernelError]:
        """Subscribe at the kernel, and read what is retained under the filters; which of them
        failed, by place.
        """
        failed = await self._at_kernel(wanted)
        entered: list[Wanted] = []
        for each in wanted:
            if self._session.is_over:
                return failed
            if each.place in failed:
                continue
            subscribed = each.subscribed
            subscribed.held = []
            if subscribed.way is Way.SYSTEM and not self._wants_retained(each):
                subscribed.held = None
            try:
                self._replace(each.existing, subscribed)
            except KernelError as error:
                failed[each.place] = error
                self._inbox.subscriptions.pop(subscribed.text, None)
                continue
            entered.append(each)
        if any(each.subscribed.way is Way.LIVE for each in entered):
            await self._env.tree.watched()
        asking = [
            each
            for each in entered
            if not (each.subscribed.is_shared or each.subscribed.way is Way.SYSTEM)
            and self._wants_retained(each)
        ]
        if asking:
            failed.update(await self._with_retained(asking, outcomes))
        return failed

    @staticmethod
    def _wants_retained(wanted: Wanted) -> bool:
        handling = wanted.request.retain_handling
        return handling == _SEND_ALWAYS or (handling == _SEND_IF_NEW and wanted.existing is None)

    async def _at_kernel(self, wanted: Sequence[Wanted]) -> dict[int, KernelError]:
        """What has to be on disk, is; which filters failed, by place."""
        failed: dict[int, KernelError] = {}
        stored = {
            _subscription_of(each.subscribed): each
            for each in wanted
            if each.subscribed.way is Way.STORED
        }
        if stored:
            options = {key: each.subscribed.options.encoded() for key, each in stored.items()}
            try:
                for key, result in (await self._subscriber.subscribe_all(options)).items():
                    if isinstance(result, KernelError):
                        failed[stored[key].place] = result
            except KernelError as error:
                failed.update((each.place, error) for each in stored.values())
        for each in wanted:
            if each.topic is None:
                continue
            try:
                if each.existing is not None and each.existing.consumer is not None:
                    each.subscribed.consumer = each.existing.consumer
                else:
                    await self._join_group(each.topic, each.subscribed)
            except KernelError as error:
                failed[each.place] = error
        # Only now, and without those that failed: a session that comes back has what is noted.
        noted = [
            each
            for each in wanted
            if each.subscribed.way is not Way.STORED and each.place not in failed
        ]
        changes: list[notes.Change] = [
            (_note_key(each.subscribed), each.subscribed.options.encoded()) for each in noted
        ]
        # A live subscription that is stored from now on needs no note.
        changes += [
            (_note_key(each.existing), None)
            for each in wanted
            if each.existing is not None
            and each.existing.way is Way.LIVE
            and each.subscribed.way is not Way.LIVE
            and each.place not in failed
        ]
        try:
            await self._note(changes)
        except KernelError as error:
            failed.update((each.place, error) for each in noted)
        return failed

    async def _with_retained(
        self, asking: Sequence[Wanted], outcomes: list[SubscribeOutcome]
    ) -> dict[int, KernelError]:
        """Read what is retained under filters into their outcomes; which failed, by place."""
        failed: dict[int, KernelError] = {}
        tree, patterns = self._env.tree, [each.subscribed.filter.pattern for each in asking]
        has = [True]
        if len(asking) > 1:
            try:
                has = list(await tree.retains(self._tenant, patterns))
            except KernelError as error:
                failed.update((each.place, error) for each in asking)
        for each, has_some in zip(asking, has if not failed else (), strict=not failed):
            if not has_some:
                continue
            try:
                found = await self._retained(each.subscribed)
                outcomes[each.place] = outcomes[each.place]._replace(retained=found)
            except KernelError as error:
                failed[each.place] = error
        gone = [each.subscribed for each in asking if each.place in failed]
        if gone:
            await self.withdraw(gone)
        return failed

    async def _retained(self, subscribed: Subscribed) -> tuple[tuple[int, View], ...]:
        found = await self._env.tree.retained(
            self._tenant, subscribed.filter.pattern, self._env.settings.retained_per_filter_max
        )
        origins = self._env.client.origins
        return tuple((age_ms, View(slot, origins)) for age_ms, slot in found)

    def _replace(self, existing: Subscribed | None, subscribed: Subscribed) -> None:
        """Have a subscription in the place of the one that the filter had, if it had one."""
        if existing is not None:
            if existing.held:
                subscribed.held = existing.held
            self._inbox.filters.remove(existing)
            if existing.way is Way.STORED:
                self._stored().remove(_subscription_of(existing))
        self._enter(subscribed, existing)
        if existing is not None:
            self._env.live.leave(self._inbox, existing)

    def _enter(self, subscribed: Subscribed, existing: Subscribed | None = None) -> None:
        """Into the table; a live one begins to hear, holding back while it must."""
        inbox = self._inbox
        was_overlapping = inbox.overlapping
        inbox.subscriptions[subscribed.text] = subscribed
        inbox.filters.add(subscribed)
        if inbox.overlapping and not was_overlapping:
            for each in inbox.subscriptions.values():
                if each.pattern is not None:
                    self._listen(each)
        if subscribed.way is Way.LIVE:
            self._listen(subscribed, existing)

    def _listen(self, subscribed: Subscribed, existing: Subscribed | None = None) -> None:
        single = self._inbox.overlapping or subscribed.held is not None
        self._env.live.join(
            self._tenant, self._inbox, subscribed, single=single, instead_of=existing
        )

    async def open(self, subscriptions: Sequence[Subscribed]) -> None:
        """Let their messages flow."""
        for some in sliced(subscriptions, lambda each: each.text):
            if some[0] is not subscriptions[0]:
                await others_turn()
            for subscribed in some:
                if self._session.is_over:
                    return
                if self._inbox.subscriptions.get(subscribed.text) is not subscribed:
                    continue
                if subscribed.way is Way.STORED:
                    self._stored().add(_subscription_of(subscribed), subscribed)
                elif subscribed.way is Way.TOPIC:
                    if subscribed.consumer is not None:
                        self._stored().attached(subscribed.consumer)
                elif subscribed.way is Way.SYSTEM:
                    self._env.figures.read_by(self._inbox, subscribed)
                else:
                    self._inbox.release(subscribed)
                    if not self._inbox.overlapping:
                        self._listen(subscribed)

    # --- Topics of the kernel ---------------------------------------------------------------

    async def topics(self, names: Sequence[str]) -> dict[str, TopicInfo | KernelError | None]:
        """The topics that shares may join: those that other protocols see."""
        client = self._env.client
        found: dict[str, TopicInfo | KernelError | None] = {}
        unknown: list[str] = []
        for name in names:
            try:
                found[name] = _visible(client.topic(self._tenant, name))
            except NotLoaded:
                unknown.append(name)
        if not unknown:
            return found
        try:
            await client.load(self._tenant, topics=unknown, routers=())
        except KernelError as error:
            if len(unknown) == 1:
                return {**found, unknown[0]: error}
            for name in unknown:
                # Perhaps one of them is at fault: not the others.
                found.update(await self.topics((name,)))
            return found
        for name in unknown:
            found[name] = _visible(client.topic(self._tenant, name))
        return found

    async def _join_group(self, topic: TopicInfo, subscribed: Subscribed) -> None:
        """Become a member of the group that a share names, which is made if it is new."""
        client, group = self._env.client, subscribed.filter.share_name
        if group not in topic.groups:
            made = await client.administer(
                PutTopic(topic.tenant, topic.name, topic.options, {group: GroupOptions()})
            )
            assert made is not None
            found = (await self.topics((topic.name,)))[topic.name]
            if isinstance(found, KernelError):
                raise found
            if found is None:
                raise KernelError(Code.NOT_FOUND, f"topic {topic.name} is gone")
            topic = found
        spec = ConsumerSpec(topic, group, self._kernel_session(), tag=subscribed)
        subscribed.consumer = client.attach(spec, self._stored())

    # --- Ending -----------------------------------------------------------------------------

    async def withdraw(self, gone: Sequence[Subscribed]) -> dict[str, KernelError]:
        """End subscriptions; why those did not that end only with the session, by text."""
        failed: dict[str, KernelError] = {}
        stored: dict[Subscription, str] = {}
        changes: list[notes.Change] = []
        for each in gone:
            self._inbox.subscriptions.pop(each.text, None)
            self._inbox.filters.remove(each)
            self._env.live.leave(self._inbox, each)
            if each.way is Way.STORED:
                subscription = _subscription_of(each)
                self._stored().remove(subscription)
                stored[subscription] = each.text
                continue
            if each.consumer is not None:
                each.consumer.cancel()
            changes.append((_note_key(each), None))
        try:
            if stored:
                told = await self._subscriber.unsubscribe_all(list(stored))
                failed.update(
                    (stored[each], result)
                    for each, result in told.items()
                    if isinstance(result, KernelError)
                )
        except KernelError as error:
            failed.update((text, error) for text in stored.values())
        try:
            await self._note(changes)
        except KernelError as error:
            failed.update((each.text, error) for each in gone if each.way is not Way.STORED)
        return failed

    # --- Notes ------------------------------------------------------------------------------

    async def _note(self, changes: Sequence[notes.Change]) -> None:
        """Notes, on disk when this returns; a session that is not kept has none."""
        if not self._persistent or not changes:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settle(error: KernelError | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        self._subscriber.note(changes, settle)
        await done


async def others_turn() -> None:
    """Whoever else has something to do does it now."""
    await asyncio.sleep(0)


def sliced(items: Sequence[_T], text_of: Callable[[_T], str]) -> Iterator[Sequence[_T]]:
    """What is set up, or ended, in one go: a bounded number of filters, none of them twice."""
    start = size = 0
    texts: set[str] = set()
    for at, each in enumerate(items):
        text = text_of(each)
        size += len(text)
        full = at - start >= FILTERS_TOGETHER_MAX or size > FILTER_CHARACTERS_TOGETHER_MAX
        if at > start and (full or text in texts):
            yield items[start:at]
            start, size = at, len(text)
            texts.clear()
        texts.add(text)
    if start < len(items):
        yield items[start:]


def _visible(topic: TopicInfo | None) -> TopicInfo | None:
    if topic is None or topic.options.hidden or topic.options.owner is not None:
        return None
    return topic


def _note_key(subscribed: Subscribed) -> bytes:
    kind = notes.TOPIC_MEMBERSHIP if subscribed.way is Way.TOPIC else notes.LIVE_SUBSCRIPTION
    return kind + subscribed.text.encode()


def _subscription_of(subscribed: Subscribed) -> Subscription:
    return Subscription(subscribed.filter.pattern, subscribed.filter.share_name)


def _text_of(subscription: Subscription) -> str:
    if not subscription.share:
        return subscription.pattern
    return f"{SHARE_PREFIX}{subscription.share}/{subscription.pattern}"
