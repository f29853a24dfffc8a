"""The size of a topic, set and lifted: what the API and documents of definitions have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel.api.client import PutRecord, ResizeTopic
from kernel.api.model import TopicInfo
from kernel.common.errors import Code, KernelError
from kernel.definitions.definition_checks import check_resize
from kernel.definitions.sizes import queues_for
from kernel.definitions.topic_sizes import PREFIX, SIZES_MAX, TopicSize, encode, key_of, size_of

if TYPE_CHECKING:
    from kernel.api.client import Client


def known_size(client: Client, topic: TopicInfo) -> TopicSize | None:
    """The size of a topic; None: it has none."""
    key = key_of(topic.tenant, topic.name)
    return size_of(topic, client.records(key).get(key))


def check_size(topic: TopicInfo, size: TopicSize) -> None:
    """Raise KernelError NOT_ALLOWED for a topic that cannot have a size: one that it would have to
    be resized for, and is not, or that is not kept.
    """
    if not topic.options.durable or _is_resized(topic, size):
        check_resize(topic, by_key=size.by_key)


def _is_resized(topic: TopicInfo, size: TopicSize) -> bool:
    """Whether it may have to have other queues. A size that it keeps takes so many or more."""
    return not size.is_fixed or len(topic.writable) < queues_for(size.least)


async def put_size(client: Client, topic: TopicInfo, size: TopicSize) -> TopicInfo:
    """Give a topic a size, with as many queues as that takes. Raises KernelError: INVALID_ARGUMENT,
    LIMIT_EXCEEDED, ALREADY_EXISTS (somebody else has set it meanwhile), and what `ResizeTopic`
    does.
    """
    size.check()
    key = key_of(topic.tenant, topic.name)
    records = client.records(PREFIX)
    if key not in records and len(records) >= SIZES_MAX:
        raise KernelError(Code.LIMIT_EXCEEDED, f"{SIZES_MAX} topics have a size already")
    check_size(topic, size)
    if _is_resized(topic, size):
        queues = size.clamp(len(topic.writable))
        # First, so that what only the leader of its home can tell is said.
        change = ResizeTopic(topic.tenant, topic.name, queues, size.by_key, size.spread)
        resized = await client.administer(change)
        assert isinstance(resized, TopicInfo)
        topic = resized
    version = records[key][0] if key in records else 0
    await client.administer(PutRecord(key, encode(size), version))
    return topic


async def remove_size(client: Client, topic: TopicInfo) -> None:
    """Have a topic keep the queues it has, whoever publishes how much. Raises KernelError
    NOT_FOUND: it has no size.
    """
    key = key_of(topic.tenant, topic.name)
    record = client.records(key).get(key)
    if record is None or size_of(topic, record) is None:
        raise KernelError(Code.NOT_FOUND, f"topic {topic.name} has no size")
    await client.administer(PutRecord(key, None, record[0]))
