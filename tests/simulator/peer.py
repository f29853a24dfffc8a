"""A client connection as an adapter would drive it, with a memory of everything it heard.

Works over any `kernel.api.client.Client`: the local one, the hostile one, later a cluster's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from kernel.api import message as messages
from kernel.api.client import (
    Client,
    Consumer,
    ConsumerSpec,
    Deliveries,
    Destinations,
    PublishBatch,
    PutTopic,
    Settlement,
)
from kernel.api.message import HEADER, VERSION, Ext, Flag
from kernel.api.model import (
    DEFAULT_GROUP,
    DEFAULT_TENANT,
    GroupOptions,
    Reason,
    TopicInfo,
    TopicOptions,
)
from kernel.common.errors import KernelError
from kernel.common.ids import QueueId
from kernel.common.ports import Clock

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
    deduplication_id: bytes = b""
    native: bytes = b""
    name: str = ""
    """In the topic tree."""
    flags: int = 0

    def parts(self, uid: tuple[int, int], published_ms: int) -> list[bytes]:
        """Header, ext, native block and body, as `PublishBatch.add` takes them."""
        fields: dict[int, bytes] = {}
        if self.key:
            fields[Ext.ORDERING_KEY] = self.key
        if self.name:
            fields[Ext.TREE_NAME] = self.name.encode()
        if self.tag:
            fields[Ext.TAG] = self.tag
        if self.deduplication_id:
            fields[Ext.DEDUPLICATION_ID] = self.deduplication_id
        ext = messages.encode_ext(fields)
        header = HEADER.pack(
            VERSION,
            ORIGIN,
            self.priority,
            self.flags | (Flag.DEDUPLICATE if self.deduplication_id else 0),
            len(self.body),
            len(self.native),
            len(ext),
            *uid,
            published_ms,
            self.ttl_ms,
            self.delay_ms,
            messages.key_hash(self.key) if self.key else 0,
            messages.tag_hash(self.tag) if self.tag else 0,
            0,
        )
        return [each for each in (header, ext, self.native, self.body) if each]


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message that a recorder got."""

    queue: QueueId
    offset: int
    uid: bytes
    body: bytes
    attempt: int
    slot: bytes
    consumer: Consumer
    """Whom to settle it with: on a topic of several queues there is one for each."""


class Sent:
    """One batch that was submitted."""

    def __init__(self, heard: Callable[[Sent], None] | None) -> None:
        self.uids: list[bytes] = []
        """Uid of each message, in the order they were added."""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.batch: PublishBatch | None = None
        """As it was completed."""
        self.failures: Mapping[int, KernelError] = {}
        self.heard = heard

    @property
    def accepted(self) -> list[bytes]:
        """Uids of the messages that were stored everywhere (once done)."""
        return [uid for at, uid in enumerate(self.uids) if at not in self.failures]


Failures = Mapping[int, KernelError]


class Answer:
    """`SettleSink` of one call."""

    def __init__(self, heard: Callable[[Failures], None] | None = None) -> None:
        self.future: asyncio.Future[Failures] = asyncio.get_running_loop().create_future()
        self._heard = heard

    def settled(self, tag: object, failures: Failures | None) -> None:
        assert tag is self
        if self._heard is not None:
            self._heard(failures or {})
        self.future.set_result(failures or {})


class Recorder:
    """A push consumer and what it has got. `sink` of one consumer."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.consumer: Consumer | None = None
        self.got: list[Delivery] = []
        self.calls = 0
        """Calls of `deliver`."""
        self.held: dict[tuple[QueueId, int], Delivery] = {}
        """By queue and offset: not settled yet. Kept up for consumers that do not ack by
        themselves."""
        self.error: KernelError | None = None
        self._arrived = asyncio.Event()

    # ConsumerSink

    def deliver(self, consumer: Consumer, deliveries: Deliveries) -> None:
        self.calls += 1
        for each in read(deliveries, consumer):
            self.got.append(each)
            place = (each.queue, each.offset)
            assert place not in self.held, f"offset {each.offset} was given twice"
            self.held[place] = each
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

    @property
    def attempts(self) -> list[int]:
        """Attempt of everything it got, in order."""
        return [each.attempt for each in self.got]

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
        self, how: Settlement, *wanted: int | Delivery, reason: Reason = Reason.REJECTED
    ) -> None:
        """Settle without an answer: offsets, or (on a topic of several queues) deliveries."""
        for consumer, some in self._by_consumer(wanted):
            self._client.settle(consumer, how, some, reason=reason)

    def settling(
        self,
        how: Settlement,
        *wanted: int | Delivery,
        reason: Reason = Reason.REJECTED,
        heard: Callable[[Failures], None] | None = None,
    ) -> asyncio.Future[Failures]:
        """Settle with an answer, without waiting for it; all of one queue."""
        answer = Answer(heard)
        ((consumer, some),) = self._by_consumer(wanted)
        self._client.settle(consumer, how, some, reason=reason, sink=answer, tag=answer)
        return answer.future

    async def settle(
        self, how: Settlement, *wanted: int | Delivery, reason: Reason = Reason.REJECTED
    ) -> Failures:
        """Settle; the failures, once it is on disk."""
        return await self.settling(how, *wanted, reason=reason)

    async def ack(self, *wanted: int | Delivery) -> Failures:
        """Ack with an answer; all it holds (in one queue) if nothing is named."""
        return await self.settle(Settlement.ACK, *(wanted or list(self.held.values())))

    def _by_consumer(self, wanted: Iterable[int | Delivery]) -> list[tuple[Consumer, list[int]]]:
        """Offsets with the consumer that holds each; bare ones with the consumer itself."""
        grouped: dict[int, tuple[Consumer, list[int]]] = {}
        for each in wanted:
            if isinstance(each, Delivery):
                consumer, offset = each.consumer, each.offset
                self.held.pop((each.queue, offset), None)
            else:
                assert self.consumer is not None
                consumer, offset = self.consumer, each
                for place in [place for place in self.held if place[1] == offset]:
                    del self.held[place]
            grouped.setdefault(id(consumer), (consumer, []))[1].append(offset)
        if not grouped:
            assert self.consumer is not None
            return [(self.consumer, [])]
        return list(grouped.values())


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
        assert sent.batch is None, "a batch was answered twice"
        sent.batch = batch
        sent.failures = batch.failures or {}
        if sent.heard is not None:
            sent.heard(sent)
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

    def submit(
        self,
        to: TopicInfo | Destinations,
        *drafts: Draft | bytes,
        heard: Callable[[Sent], None] | None = None,
    ) -> Sent:
        """Publish; the answer comes later."""
        destinations = self.client.to_topic(to) if isinstance(to, TopicInfo) else to
        batch = self.client.batch(self.session, self)
        sent = Sent(heard)
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
    ) -> Recorder:
        """A push consumer with so much credit."""
        recorder = Recorder(self.client)
        spec = ConsumerSpec(
            topic, group, self.session, priority=priority, exclusive=exclusive, auto_ack=auto_ack
        )
        recorder.consumer = self.client.attach(spec, recorder)
        if credit:
            recorder.grant(credit)
        return recorder

    def close(self) -> None:
        """End the session."""
        self.session.close()


def read(deliveries: Deliveries, consumer: Consumer) -> list[Delivery]:
    """The rows of the columns, taken apart."""
    attempts = deliveries.attempts
    assert len(deliveries.offsets) == len(deliveries.slots)
    assert attempts is None or len(attempts) == len(deliveries.offsets)
    rows: list[Delivery] = []
    for at, (offset, slot) in enumerate(zip(deliveries.offsets, deliveries.slots, strict=True)):
        found = messages.decode(slot)
        attempt = 1 if attempts is None else attempts[at]
        rows.append(
            Delivery(deliveries.queue, offset, found.uid, found.body, attempt, slot, consumer)
        )
    return rows
