"""Limits (`kernel.quotas`) where adapters meet them: topics of a batch, and connections that wait.

A connection that owes is not read from, a second at most at a time; then it is asked again. What it
sends meanwhile stays in the socket, heartbeats and acks among it: so nobody is taken for gone
because of that. One that owes for what it got gets nothing for as long, as if it did not read.

What was read already while more than a second is owed, whoever owes it, is kept with its connection
until nothing is: else everybody who connects anew would bring a read more. It goes with the
connection, whose client has not been told that it was stored. A client that has left is not waited
for long: its connection is read to its end, and what else it has published is dropped.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from kernel.api.message import HEADER_BYTES
from kernel.common.errors import NotLoaded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from adapters.base import Rights
    from kernel.api.client import Client, Destinations, PublishBatch
    from kernel.common.ids import TopicId
    from kernel.common.ports import Clock
    from kernel.quotas.account import Account
    from kernel.quotas.accounts import Quotas

MESSAGE_BYTES_LEAST: Final = 16
"""Of a published message on the wire, in any protocol: how many messages some bytes may be, of a
connection that has published nothing yet."""

PIECE_BYTES_MIN: Final = 512
"""Of what has been read, taken at once where a limit is near: some messages, so that who has many
connections and owes does not owe much more each time that all of them are asked."""

_NOTHING: Final[Mapping[TopicId, Account]] = {}

_LOOK_MS: Final = 1_000
"""Topics with limits that are not known here are looked for so often."""


def piece_bytes(
    account: Account,
    topics: tuple[Account, ...],
    message_bytes: int,
    now_ms: int,
    *,
    until_refused: bool = False,
) -> int:
    """How much of what was read may be taken before the limits of an account, and of the topics
    that it has published to last, are looked at again; 0: all of it. `message_bytes`: about so
    large is a message. `until_refused`: before so much is owed that more is refused.
    """
    pieces = []
    for each in (account, *topics):
        messages, size = each.room_until_refused(now_ms) if until_refused else each.room(now_ms)
        if messages is not None:
            pieces.append(messages * message_bytes)
        if size is not None:
            pieces.append(size)
    return max(PIECE_BYTES_MIN, min(pieces)) if pieces else 0


class Calling(Protocol):
    """Who makes calls, and has signed them."""

    @property
    def tenant(self) -> str:
        """Whose tenant it is."""

    @property
    def rights(self) -> Rights:
        """Its user's."""

    @property
    def accounts(self) -> dict[str, Account]:
        """What it is limited by, by listener."""


class Limiter:
    """Charges what is published and delivered in one protocol, by one process."""

    def __init__(self, protocol: str, quotas: Quotas, client: Client, clock: Clock) -> None:
        self._protocol = protocol
        self.quotas = quotas
        self.now_ms = clock.monotonic_ms
        """The time of all limits."""
        self._client = client
        self._found: dict[str, _Topics] = {}

    def account(self, tenant: str, user: str, listener: str) -> Account:
        """What a connection of a user is limited by; see `Quotas.account`. `listener`: its name."""
        return self.quotas.account(tenant, user, f"{self._protocol}.{listener}")

    def account_of(self, caller: Calling, listener: str) -> Account:
        """What the calls of one are limited by, who keeps it."""
        account = caller.accounts.get(listener)
        if account is None:
            account = self.account(caller.tenant, caller.rights.principal.name, listener)
            caller.accounts[listener] = account
        return account

    def topics_of(self, tenant: str, now_ms: int) -> Mapping[TopicId, Account]:
        """The topics of a tenant that have limits, by id."""
        return self._topics_of(tenant, now_ms).by_id

    def failing_of(self, tenant: str, now_ms: int) -> Mapping[TopicId, Account]:
        """Those of them that refuse at once what is above."""
        return self._topics_of(tenant, now_ms).failing

    def _topics_of(self, tenant: str, now_ms: int) -> _Topics:
        found = self._found.get(tenant)
        if (
            found is None
            or found.limits_version != self.quotas.version
            or found.topology_version != self._client.topology_version
            or now_ms >= found.until_ms
        ):
            found = self._found[tenant] = _Topics(
                self.quotas.version, self._client.topology_version, now_ms + _LOOK_MS
            )
            for name, accounts in self.quotas.topics(tenant).items():
                topic = self._id_of(tenant, name)
                account = accounts.of(topic)
                if topic is not None and account is not None:
                    found.by_id[topic] = account
                    if account.fails_at_once:
                        found.failing[topic] = account
        return found

    def _id_of(self, tenant: str, name: str) -> TopicId | None:
        try:
            info = self._client.topic(tenant, name)
        except NotLoaded:
            return None
        return None if info is None else info.id

    # --- Calls, which are refused one by one ------------------------------------------------

    def requested(self, account: Account) -> int:
        """A call came: for how long its client is to wait."""
        now_ms = self.now_ms()
        delay_ms = account.requested(now_ms)
        if delay_ms:
            account.delayed(now_ms)
        return delay_ms

    def refusal(self, account: Account) -> str | None:
        """Why a call is refused that settles nothing; None: it is not."""
        reason = account.requests_far_over(self.now_ms())
        if reason is not None:
            account.refused(reason)
        return reason

    def publish_refusal(self, account: Account, topic: str, messages: int) -> str | None:
        """Why so many messages to a topic are refused; None: they are not."""
        now_ms = self.now_ms()
        for each in self._with_topic(account, topic):
            reason = each.publishing_far_over(now_ms)
            if reason is not None:
                account.refused(reason, messages)
                return reason
        return None

    def call_published(self, account: Account, topic: str, messages: int, size: int) -> int:
        """A call publishes so much to a topic: for how long its client is to wait."""
        now_ms = self.now_ms()
        charged = self._with_topic(account, topic)
        delays_ms = [
            # Who is refused at once what comes next waits for nothing.
            each.published(now_ms, messages, size) * (not each.fails_at_once)
            for each in charged
        ]
        delay_ms = max(delays_ms)
        if delay_ms:
            charged[delays_ms.index(delay_ms)].delayed(now_ms)
        return delay_ms

    def receive_refusal(self, account: Account, topic: str) -> str | None:
        """Why nothing of a topic is to be had now; None: something is."""
        now_ms = self.now_ms()
        for each in self._with_topic(account, topic):
            reason = each.delivery_far_over(now_ms)
            if reason is not None:
                account.refused(reason)
                return reason
        return None

    def call_delivered(self, account: Account, topic: str, messages: int, size: int) -> int:
        """A call was answered with so much of a topic: for how long its client is to wait."""
        now_ms = self.now_ms()
        charged = self._with_topic(account, topic)
        delays_ms = [each.delivered(now_ms, messages, size) for each in charged]
        delay_ms = max(delays_ms)
        if delay_ms:
            charged[delays_ms.index(delay_ms)].delivery_delayed(now_ms)
        return delay_ms

    def _with_topic(self, account: Account, topic: str) -> tuple[Account, ...]:
        if not account.has_topics:
            return (account,)
        accounts = self.quotas.topics(account.tenant).get(topic)
        if accounts is None:
            return (account,)
        of_topic = accounts.of(self._id_of(account.tenant, topic))
        return (account,) if of_topic is None else (account, of_topic)


class _Topics:
    __slots__ = ("by_id", "failing", "limits_version", "topology_version", "until_ms")

    def __init__(self, limits_version: int, topology_version: int, until_ms: int) -> None:
        self.limits_version = limits_version
        self.topology_version = topology_version
        self.until_ms = until_ms
        self.by_id: dict[TopicId, Account] = {}
        self.failing: dict[TopicId, Account] = {}


_Amounts = list[tuple["Account", int, int]]
"""Messages and bytes of each topic that is limited."""


class Charging:
    """What one connection publishes and asks for.

    One look at an attribute a read where nothing is limited. Where something is, what was read is
    taken in pieces, each is charged, and once something is owed the rest waits.
    """

    __slots__ = (
        "_delivering",
        "_is_owing",
        "_is_refusable",
        "_kept",
        "_left_by",
        "_limiter",
        "_message_bytes",
        "_nobody_bytes",
        "_nobody_count",
        "_now_ms",
        "_requests",
        "_topics",
        "account",
        "is_left",
        "kept_bytes",
    )

    def __init__(self, limiter: Limiter, account: Account) -> None:
        self._limiter = limiter
        self._now_ms = limiter.now_ms
        self.account = account
        """What it is limited by."""
        self._kept: deque[PublishBatch] = deque()
        self.kept_bytes = 0
        """Of batches that wait until less is owed."""
        self._left_by = ""
        """The limit by which what it has published since is dropped."""
        self.is_left = False
        """Whether its client has left and is not waited for."""
        self._topics: tuple[Account, ...] = ()
        """Of the topics that it has published to last, those that are limited."""
        self._is_owing = False
        self._is_refusable = False
        """Whether the last batch might have been refused."""
        self._nobody_count = self._nobody_bytes = 0
        self._requests = 0
        self._message_bytes = MESSAGE_BYTES_LEAST
        self._delivering: Delivering | None = None
        """What is waited for besides: of who asks for each message."""

    def piece(self, read_bytes: int) -> int:
        """How many of so many bytes may be taken before the next look; 0: all of them."""
        account = self.account
        if read_bytes <= PIECE_BYTES_MIN or not account.is_limited:
            return 0
        now_ms = self._now_ms()
        if self._is_refusable and self._far_over(now_ms) is not None:
            # It is refused, however large it is.
            return 0
        ahead = self._is_refusable
        return piece_bytes(account, self._topics, self._message_bytes, now_ms, until_refused=ahead)

    def takes(self, batch: PublishBatch, *, hears_no: bool = False) -> bool:
        """Charge a batch, which is to be submitted now. False: so much is owed that it is kept, to
        be submitted when `next_kept` gives it out. `hears_no`: its publisher has asked
        `full_topic`, and is not held for the size of one.
        """
        self._is_refusable = hears_no
        if not (self.account.is_limited or self._kept):
            return True
        now_ms = self._now_ms()
        topics = self._find_topics(batch, now_ms)
        reason = self._far_over(now_ms, hears_no=hears_no)
        if self.is_left:
            self.account.dropped(reason or self._left_by, batch.count)
            return False
        if reason is None and not self._kept:
            self._charge_batch(batch, topics, now_ms, hears_no=hears_no)
            return True
        if reason is not None:
            self.account.waited(reason)
        self._kept.append(batch)
        self.kept_bytes += batch.size_bytes
        self._is_owing = True
        return False

    def far_over_ms(self, batch: PublishBatch) -> int:
        """Of a batch that cannot be kept: for how long it has to wait before it is taken."""
        if not self.account.is_limited:
            return 0
        now_ms = self._now_ms()
        self._find_topics(batch, now_ms)
        reason = self._far_over(now_ms)
        if reason is None:
            return 0
        self.account.waited(reason)
        return self.owes_ms()

    def next_kept(self) -> PublishBatch | None:
        """A batch that was kept, and is to be submitted now; None: there is none, or still
        something is owed.
        """
        if not self._kept:
            return None
        now_ms = self._now_ms()
        topics = self._find_topics(self._kept[0], now_ms)
        if self.owes_ms():
            return None
        batch = self._kept.popleft()
        self.kept_bytes -= batch.size_bytes
        self._charge_batch(batch, topics, now_ms, hears_no=False)
        return batch

    @property
    def keeps(self) -> bool:
        """Whether a batch waits."""
        return bool(self._kept)

    def leave(self) -> None:
        """Its client has left, and was waited for: what else it has published is not taken."""
        now_ms = self._now_ms()
        self._left_by = self._far_over(now_ms) or self.account.slowest(now_ms)
        self.drop_kept()
        self.is_left = True

    def drop_kept(self) -> None:
        """The connection ends: what was kept goes with it. Nobody was told that it is stored."""
        dropped = sum(each.count for each in self._kept)
        self._kept.clear()
        self.kept_bytes = 0
        if dropped:
            now_ms = self._now_ms()
            reason = self._far_over(now_ms) or self.account.slowest(now_ms)
            self.account.dropped(reason, dropped)

    def _charge_batch(
        self, batch: PublishBatch, topics: _Amounts, now_ms: int, *, hears_no: bool
    ) -> None:
        for owing in self._charge(batch, topics, now_ms):
            if not (hears_no and owing.fails_at_once):
                owing.delayed(now_ms)
                self._is_owing = True

    def failing_topics(self) -> Mapping[TopicId, Account]:
        """Topics above whose size a publisher hears no at once: of each message is to be asked
        whether one of them is full (`full_topic`), if there are any.
        """
        if not self.account.has_topics:
            return _NOTHING
        return self._limiter.failing_of(self.account.tenant, self._now_ms())

    def full_topic(self, to: Destinations, failing: Mapping[TopicId, Account]) -> str | None:
        """The limit by which one of the topics of a message takes nothing now; None: all do."""
        for topic in to.topic_ids:
            account = failing.get(topic)
            reason = account.publishing_far_over(self._now_ms()) if account is not None else None
            if reason is not None:
                return reason
        return None

    def refusal(self, batch: PublishBatch) -> str | None:
        """Why a batch is not to be submitted whose publisher hears no, and so is never held for it:
        the limit that it is far over; None: it is about to be submitted.
        """
        if not self.account.is_limited:
            return None
        now_ms = self._now_ms()
        self._is_refusable = True
        topics = self._find_topics(batch, now_ms)
        reason = self._far_over(now_ms)
        if reason is None:
            self._charge(batch, topics, now_ms)
        else:
            self.account.refused(reason, batch.count)
        return reason

    def _far_over(self, now_ms: int, *, hears_no: bool = False) -> str | None:
        reason = self.account.publishing_far_over(now_ms)
        for each in self._topics:
            if reason is None and not (hears_no and each.fails_at_once):
                reason = each.publishing_far_over(now_ms)
        return reason

    def _charge(self, batch: PublishBatch, topics: _Amounts, now_ms: int) -> list[Account]:
        """Those of the account and of the topics that owe something now."""
        count = batch.count
        size = batch.size_bytes - count * HEADER_BYTES
        # As large as the last ones, or with many small messages a piece is very few of them.
        self._message_bytes = max(MESSAGE_BYTES_LEAST, size // (count or 1))
        charged = [(self.account, count, size), *topics]
        return [each for each, *amount in charged if each.published(now_ms, *amount)]

    def _find_topics(self, batch: PublishBatch, now_ms: int) -> _Amounts:
        """The limited topics of a batch, each with its messages and their bytes."""
        if not self.account.has_topics:
            return []
        self._topics = ()
        limited = self._limiter.topics_of(self.account.tenant, now_ms)
        if not limited:
            return []
        found = [
            (limited[topic], messages, size)
            for topic, (messages, size) in batch.by_topic().items()
            if topic in limited
        ]
        self._topics = tuple(of_topic for of_topic, _, _ in found)
        return found

    def for_nobody(self, size_bytes: int) -> None:
        """A message was published that is in no batch, since nobody gets it."""
        if self.account.is_limited:
            self._nobody_count += 1
            self._nobody_bytes += size_bytes

    def requested(self) -> None:
        """One thing was asked for that takes the server some work."""
        if self.account.is_limited:
            self._requests += 1

    def waits_for(self, delivering: Delivering) -> None:
        """It was given what it had asked for: it may ask again when nothing is owed for that."""
        self._delivering, self._is_owing = delivering, True

    def take_delay_ms(self) -> int:
        """For how long what was published and asked for since the last call must be waited; 0: not
        at all, whatever others owe.
        """
        if self._requests:
            requests, self._requests = self._requests, 0
            now_ms = self._now_ms()
            if self.account.requested(now_ms, requests):
                self.account.delayed(now_ms)
                self._is_owing = True
        if self._nobody_count:
            count, size = self._nobody_count, self._nobody_bytes
            self._nobody_count = self._nobody_bytes = 0
            now_ms = self._now_ms()
            if self.account.published(now_ms, count, size):
                self.account.delayed(now_ms)
                self._is_owing = True
        if not self._is_owing:
            return 0
        self._is_owing = False
        return self.owes_ms()

    def owes_ms(self) -> int:
        """For how long still, by the limits as they are now."""
        if self.is_left:
            return 0
        now_ms = self._now_ms()
        delay_ms = self.account.delay_ms(now_ms)
        for each in self._topics:
            delay_ms = max(delay_ms, each.delay_ms(now_ms))
        if self._delivering is not None:
            of_got_ms = self._delivering.delay_ms()
            if not of_got_ms:
                self._delivering = None
            delay_ms = max(delay_ms, of_got_ms)
        return delay_ms


class Delivering:
    """What one connection gets: charged by the batch, and held while something is owed.

    One look at an attribute a batch where nothing is limited.
    """

    __slots__ = ("_limiter", "_now_ms", "_topics", "account")

    def __init__(self, limiter: Limiter, account: Account) -> None:
        self._limiter = limiter
        self._now_ms = limiter.now_ms
        self.account = account
        """What it is limited by: `limits_delivery` is asked first."""
        self._topics: dict[TopicId, Account] = {}
        """Those of which more was delivered than is allowed."""

    def delivered(self, messages: int, size_bytes: int) -> None:
        """So much was delivered, of whatever topic."""
        now_ms = self._now_ms()
        if self.account.delivered(now_ms, messages, size_bytes):
            self.account.delivery_delayed(now_ms)

    def of_topic(self, topic: TopicId, messages: int, size_bytes: int) -> None:
        """So much of it was of a topic."""
        if not self.account.has_topics:
            return
        now_ms = self._now_ms()
        limits = self._limiter.topics_of(self.account.tenant, now_ms).get(topic)
        if limits is not None and limits.delivered(now_ms, messages, size_bytes):
            limits.delivery_delayed(now_ms)
            self._topics[topic] = limits

    def room(self, topic: TopicId, message_bytes: int) -> int | None:
        """Messages of a topic that may be delivered now; None: any number."""
        now_ms = self._now_ms()
        room = self.account.delivery_room(now_ms, message_bytes)
        if self.account.has_topics:
            limits = self._limiter.topics_of(self.account.tenant, now_ms).get(topic)
            of_topic = limits.delivery_room(now_ms, message_bytes) if limits is not None else None
            if of_topic is not None:
                return of_topic if room is None else min(room, of_topic)
        return room

    def held(self, topic: TopicId) -> None:
        """Count that there was no `room`."""
        now_ms = self._now_ms()
        limits = self._limiter.topics_of(self.account.tenant, now_ms).get(topic)
        room = limits.delivery_room(now_ms, 1) if limits is not None else None
        if limits is not None and room is not None and room <= 0:
            limits.delivery_held(now_ms)
        else:
            self.account.delivery_held(now_ms)

    def delay_ms(self) -> int:
        """For how long nothing is to be delivered; 0: something may be."""
        now_ms = self._now_ms()
        delay_ms = self.account.delivery_delay_ms(now_ms)
        for topic, limits in list(self._topics.items()):
            of_topic_ms = limits.delivery_delay_ms(now_ms)
            if not of_topic_ms:
                del self._topics[topic]
            delay_ms = max(delay_ms, of_topic_ms)
        return delay_ms
