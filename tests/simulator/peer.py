"""A client connection as an adapter would drive it, with a memory of everything it heard.

Works over any `kernel.client.Client`: the local one, the hostile one, later a cluster's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernel import message as messages
from kernel.client import (
    Client,
    Consumer,
    ConsumerSpec,
    Deliveries,
    Destinations,
    PublishBatch,
    PutTopic,
    Settlement,
)
from kernel.errors import KernelError
from kernel.message import HEADER, VERSION
from kernel.model import (
    DEFAULT_GROUP,
    DEFAULT_TENANT,
    GroupOptions,
    Reason,
    TopicInfo,
    TopicOptions,
)
from kernel.ports import Clock

ORIGIN = 200
"""Origin byte of the tests: no adapter registers it."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A message to be published."""

    body: bytes
    priority: int = 0
    ttl_ms: int = 0
    delay_ms: int = 0
    key: bytes = b""
    tag: bytes = b""
    native: bytes = b""

    def parts(self, uid: tuple[int, int], published_ms: int) -> list[bytes]:
        """Header, native block and body, as `PublishBatch.add` takes them."""
        header = HEADER.pack(
            VERSION,
            ORIGIN,
            self.priority,
            0,
            len(self.body),
            len(self.native),
            0,
            *uid,
            published_ms,
            self.ttl_ms,
            self.delay_ms,
            messages.key_hash(self.key) if self.key else 0,
            messages.tag_hash(self.tag) if self.tag else 0,
            0,
        )
        return [header, self.native, self.body] if self.native else [header, self.body]


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message that a taker got."""

    offset: int
    uid: bytes
    body: bytes
    attempt: int
    slot: bytes


class Sent:
    """One batch that was submitted."""

    def __init__(self, uids: list[bytes], done: asyncio.Future[None]) -> None:
        self.uids = uids
        """Uid of each message, in the order they were added."""
        self.done = done
        self.failures: Mapping[int, KernelError] = {}

    @property
    def accepted(self) -> list[bytes]:
        """Uids of the messages that were stored everywhere (once done)."""
        return [uid for at, uid in enumerate(self.uids) if at not in self.failures]


class Taker:
    """A push consumer and what it has got. `sink` of one consumer."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.consumer: Consumer | None = None
        self.got: list[Delivery] = []
        self.calls = 0
        """Calls of `deliver`."""
        self.held: dict[int, Delivery] = {}
        """By offset: not settled yet."""
        self.error: KernelError | None = None
        self._arrived = asyncio.Event()

    # ConsumerSink

    def deliver(self, consumer: Consumer, deliveries: Deliveries) -> None:
        self.calls += 1
        for each in read(deliveries):
            self.got.append(each)
            assert each.offset not in self.held, f"offset {each.offset} was given twice"
            self.held[each.offset] = each
        self._arrived.set()

    def consumer_ended(self, consumer: Consumer, error: KernelError) -> None:
        self.error = error
        self._arrived.set()

    # What a test asks for

    @property
    def bodies(self) -> list[bytes]:
        """Bodies of everything it got, in order."""
        return [each.body for each in self.got]

    @property
    def offsets(self) -> list[int]:
        """Offsets of everything it got, in order."""
        return [each.offset for each in self.got]

    def grant(self, messages: int) -> None:
        assert self.consumer is not None
        self.consumer.grant(messages)

    def cancel(self) -> None:
        assert self.consumer is not None
        self.consumer.cancel()

    async def wait_for(self, count: int, seconds: float = 10) -> list[Delivery]:
        """What it got, once that is at least `count` messages. TimeoutError."""
        async with asyncio.timeout(seconds):
            while len(self.got) < count:
                self._arrived.clear()
                await self._arrived.wait()
        return self.got

    def settle_now(
        self, how: Settlement, offsets: Sequence[int], reason: Reason = Reason.REJECTED
    ) -> None:
        """Settle without an answer."""
        assert self.consumer is not None
        self._peer.client.settle(self.consumer, how, offsets, reason=reason)
        self._forget(offsets)

    async def settle(
        self, how: Settlement, offsets: Sequence[int], reason: Reason = Reason.REJECTED
    ) -> Mapping[int, KernelError]:
        """Settle; the failures, once it is on disk."""
        return await self.settling(how, offsets, reason)

    def settling(
        self, how: Settlement, offsets: Sequence[int], reason: Reason = Reason.REJECTED
    ) -> asyncio.Future[Mapping[int, KernelError]]:
        """Settle with an answer, without waiting for it."""
        assert self.consumer is not None
        answer = _Answer()
        self._peer.client.settle(
            self.consumer, how, offsets, reason=reason, sink=answer, tag=answer
        )
        self._forget(offsets)
        return answer.future

    async def ack(self, *offsets: int) -> Mapping[int, KernelError]:
        """Ack with an answer; all it holds if no offset is named."""
        return await self.settle(Settlement.ACK, offsets or sorted(self.held))

    def _forget(self, offsets: Sequence[int]) -> None:
        for offset in offsets:
            self.held.pop(offset, None)


class _Answer:
    """`SettleSink` of one call."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Mapping[int, KernelError]] = (
            asyncio.get_running_loop().create_future()
        )

    def settled(self, tag: object, failures: Mapping[int, KernelError] | None) -> None:
        assert tag is self
        self.future.set_result(failures or {})


class Peer:
    """One connection: a session, what it published, whom it attached."""

    def __init__(self, client: Client, clock: Clock, name: str) -> None:
        self.client = client
        self._clock = clock
        self.session = client.open_session(name)
        self.completed: list[PublishBatch] = []

    # PublishSink

    def published(self, batch: PublishBatch) -> None:
        self.completed.append(batch)
        sent = batch.tag
        assert isinstance(sent, Sent)
        sent.failures = batch.failures or {}
        sent.done.set_result(None)

    # What a test asks for

    async def topic(
        self,
        name: str,
        options: TopicOptions | None = None,
        group: GroupOptions | None = None,
        *,
        groups: Mapping[str, GroupOptions] | None = None,
        must_be_new: bool = False,
    ) -> TopicInfo:
        """Create a topic (with the group `default` if no groups are named)."""
        wanted = groups if groups is not None else {DEFAULT_GROUP: group or GroupOptions()}
        change = PutTopic(
            DEFAULT_TENANT,
            name,
            options or TopicOptions(),
            wanted,
            session=self.session,
            must_be_new=must_be_new,
        )
        info = await self.client.administer(change)
        assert isinstance(info, TopicInfo)
        return info

    def submit(self, to: TopicInfo | Destinations, *drafts: Draft | bytes) -> Sent:
        """Publish; the answer comes later."""
        destinations = self.client.to_topic(to) if isinstance(to, TopicInfo) else to
        batch = self.client.batch(self.session, self)
        sent = Sent([], asyncio.get_running_loop().create_future())
        batch.tag = sent
        now_ms = self._clock.wall_ms()
        for each in drafts:
            draft = each if isinstance(each, Draft) else Draft(each)
            uid = batch.uid()
            parts = draft.parts(uid, now_ms)
            batch.add(destinations, parts, sum(map(len, parts)))
            sent.uids.append(uid[0].to_bytes(8, "big") + uid[1].to_bytes(8, "big"))
        self.client.submit(batch)
        return sent

    async def publish(self, to: TopicInfo | Destinations, *drafts: Draft | bytes) -> Sent:
        """Publish; returns once it is answered."""
        sent = self.submit(to, *drafts)
        await sent.done
        return sent

    def attach(
        self,
        topic: TopicInfo,
        *,
        credit: int = 0,
        group: str = DEFAULT_GROUP,
        priority: int = 0,
        exclusive: bool = False,
        auto_ack: bool = False,
    ) -> Taker:
        """A push consumer with so much credit."""
        taker = Taker(self)
        spec = ConsumerSpec(
            topic, group, self.session, priority=priority, exclusive=exclusive, auto_ack=auto_ack
        )
        taker.consumer = self.client.attach(spec, taker)
        if credit:
            taker.grant(credit)
        return taker

    def close(self) -> None:
        """End the session."""
        self.session.close()


def read(deliveries: Deliveries) -> list[Delivery]:
    """The rows of the columns, taken apart."""
    attempts = deliveries.attempts
    rows: list[Delivery] = []
    assert len(deliveries.offsets) == len(deliveries.slots)
    assert attempts is None or len(attempts) == len(deliveries.offsets)
    for at, (offset, slot) in enumerate(zip(deliveries.offsets, deliveries.slots, strict=True)):
        message = messages.decode(slot)
        attempt = 1 if attempts is None else attempts[at]
        rows.append(Delivery(offset, message.uid, message.body, attempt, slot))
    return rows
