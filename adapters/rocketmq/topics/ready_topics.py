"""Topics and consumer groups as calls need them: found by name, kept in ready form, made by use.

* RocketMQ sees every topic that it can spell, by whatever protocol it was made, except what belongs
  to one connection. A topic is made by asking for its route where `auto_create` says so: out of
  the box in the tenant `default` of a server on loopback.
* Consumer groups are made by use (docs/design/model.md#consumer-groups), and with each the topic of
  its dead letters, `dlq.GROUP`, a work topic that AMQP reads as well (SQS cannot spell it). A group
  is ordered if its topic was made for FIFO messages. It begins at the first message that is there,
  on a stream as `stream_start` says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from kernel.api.client import PutTopic
from kernel.api.model import (
    DeadLetter,
    GroupOptions,
    Start,
    TopicInfo,
    TopicKind,
    TopicOptions,
)
from kernel.common.errors import NotLoaded

from ..errors import Code, RocketmqError
from ..messages.stored import Target
from ..messages.topic_types import MessageType, accepted, dead_letters_of
from ..names import dead_letter_topic, shown_topic
from ..settings import TOPICS_KEPT_MAX

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from kernel.api.client import Client, Destinations

    from ..settings import RocketmqSettings


class Locks(Protocol):
    """One change of a topic at a time (`kernel.common.keyed_lock.KeyedLock`)."""

    def of(self, tenant: str, name: str) -> AbstractAsyncContextManager[None]:
        """The lock of a topic's name."""


class Topic:
    """One topic, as long as the kernel's definitions stay as they are."""

    __slots__ = ("_by_queue", "_queues", "_round_robin", "_turn_of", "info", "target")

    def __init__(self, info: TopicInfo, settings: RocketmqSettings) -> None:
        options = info.options
        types = accepted(options)
        has_window = options.deduplication_ms is not None
        self.info = info
        self.target = Target(
            name=shown_topic(info.name),
            accepted=types,
            body_bytes_max=min(options.message_bytes_max, settings.body_bytes_max),
            has_window=has_window,
            takes_plain=MessageType.NORMAL in types and not has_window,
        )
        self._queues = info.regular
        self._by_queue: list[Destinations | None] = [None] * (len(self._queues) + 1)
        self._round_robin = 0
        self._turn_of = -1

    @property
    def has_transactions(self) -> bool:
        """Whether its messages are prepared, then committed or rolled back."""
        return MessageType.TRANSACTION in self.target.accepted

    @property
    def is_fifo(self) -> bool:
        """Whether its consumer groups deliver in order."""
        return MessageType.FIFO in self.target.accepted

    def by_key(self, client: Client) -> Destinations:
        """Destinations of messages with an ordering key: the kernel chooses the queue by it."""
        found = self._by_queue[-1]
        if found is None:
            found = self._by_queue[-1] = client.to_topic(self.info)
        return found

    def in_turn(self, client: Client, batch: int) -> Destinations:
        """Destinations of messages without a key: one queue, the next one with every batch.

        `batch`: the number of the kernel batch that they go in. Messages sent together go to one
        queue, as in RocketMQ; it also makes one append of them.
        """
        if batch != self._turn_of:
            self._turn_of = batch
            self._round_robin = (self._round_robin + 1) % len(self._queues)
        number = self._round_robin
        found = self._by_queue[number]
        if found is None:
            alone = self.info.only(self._queues[number])
            found = self._by_queue[number] = client.to_topic(alone)
        return found


class Topics:
    """Finds topics and makes groups. Belongs to the event loop."""

    def __init__(self, client: Client, settings: RocketmqSettings, locks: Locks) -> None:
        self._client = client
        self._settings = settings
        self._locks = locks
        self._kept: dict[tuple[str, str], Topic] = {}
        self._version = -1

    def known(self, tenant: str, name: str) -> Topic | None:
        """A topic by its kernel name, if it is at hand (hot)."""
        version = self._client.topology_version
        if version != self._version:
            self._kept.clear()
            self._version = version
        return self._kept.get((tenant, name))

    async def find(self, tenant: str, name: str) -> Topic:
        """A topic by its kernel name. Raises TOPIC_NOT_FOUND."""
        topic = self.known(tenant, name)
        if topic is not None:
            return topic
        info = await self._look_up(tenant, name)
        if info is None:
            raise topic_not_found(name)
        return self._keep(info)

    async def find_or_make(self, tenant: str, name: str) -> Topic:
        """As `find`; makes the topic if there is none and the setting allows it."""
        topic = self.known(tenant, name)
        if topic is not None:
            return topic
        async with self._locks.of(tenant, name):
            info = await self._look_up(tenant, name)
            if info is None:
                options = TopicOptions(
                    kind=TopicKind.STREAM,
                    queues=self._settings.auto_create_queues,
                    retention_ms=self._settings.stream_retention_ms,
                    message_bytes_max=self._settings.body_bytes_max,
                )
                info = await self._put(PutTopic(tenant, name, options, {}))
        return self._keep(info)

    async def with_group(self, topic: Topic, group: str) -> Topic:
        """A topic that has the group, which is made if need be."""
        if group in topic.info.groups:
            return topic
        tenant, name = topic.info.tenant, topic.info.name
        async with self._locks.of(tenant, name):
            info = await self._look_up(tenant, name)
            if info is None:
                raise topic_not_found(name)
            if group not in info.groups:
                await self._make_dead_letter_topic(tenant, group)
                options = self._group_options(topic, group)
                info = await self._put(PutTopic(tenant, name, info.options, {group: options}))
        return self._keep(info)

    async def with_dead_letters(self, topic: Topic, group: str) -> Topic:
        """A topic whose group, which exists, has a place for dead letters, made if need be."""
        if topic.info.groups[group].dead_letter is not None:
            return topic
        tenant, name = topic.info.tenant, topic.info.name
        async with self._locks.of(tenant, name):
            info = await self._look_up(tenant, name)
            if info is None or group not in info.groups:
                raise group_not_found(group)
            options = info.groups[group]
            if options.dead_letter is None:
                await self._make_dead_letter_topic(tenant, group)
                target = DeadLetter(None, dead_letter_topic(group))
                options = msgspec.structs.replace(options, dead_letter=target)
                info = await self._put(PutTopic(tenant, name, info.options, {group: options}))
        return self._keep(info)

    def _group_options(self, topic: Topic, group: str) -> GroupOptions:
        is_stream = topic.info.options.kind is TopicKind.STREAM
        return GroupOptions(
            start=self._settings.stream_start if is_stream else Start.EARLIEST,
            ordered=topic.is_fifo,
            attempts_max=self._settings.attempts_max,
            dead_letter=DeadLetter(None, dead_letter_topic(group)),
            lease_ms=self._settings.auto_renew_lease_ms,
        )

    async def _make_dead_letter_topic(self, tenant: str, group: str) -> None:
        if await self._look_up(tenant, dead_letter_topic(group)) is None:
            retention_ms = self._settings.dead_letter_retention_ms
            await self._put(dead_letters_of(tenant, group, retention_ms))

    async def _put(self, change: PutTopic) -> TopicInfo:
        made = await self._client.administer(change)
        assert isinstance(made, TopicInfo)
        return made

    async def _look_up(self, tenant: str, name: str) -> TopicInfo | None:
        try:
            info = self._client.topic(tenant, name)
        except NotLoaded:
            await self._client.load(tenant, topics=(name,), routers=())
            info = self._client.topic(tenant, name)
        hidden = info is not None and (info.options.hidden or info.options.owner is not None)
        return None if hidden else info

    def _keep(self, info: TopicInfo) -> Topic:
        key = (info.tenant, info.name)
        topic = self.known(*key)
        if topic is None or topic.info is not info:
            if len(self._kept) >= TOPICS_KEPT_MAX:
                self._kept.clear()
            topic = self._kept[key] = Topic(info, self._settings)
        return topic


def topic_not_found(name: str) -> RocketmqError:
    """What a client is told that asks for a topic which is not there."""
    return RocketmqError(
        Code.TOPIC_NOT_FOUND,
        f"no topic {shown_topic(name)}; run: "
        f"weir topic create {name} --type normal|fifo|delay|transaction|priority",
    )


def group_not_found(group: str) -> RocketmqError:
    """What a client is told that acts for a group which is not there."""
    return RocketmqError(
        Code.CONSUMER_GROUP_NOT_FOUND, f"no consumer group {group} consumes this topic"
    )
