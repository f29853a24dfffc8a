"""Which messages of a topic are traced, as it is set: what the API and what shows a topic have in
common.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel.api.client import PutRecord
from kernel.api.tracing import TraceMode
from kernel.common.errors import Code, KernelError
from kernel.definitions.topic_traces import (
    PREFIX,
    TENANT_TRACES_MAX,
    TRACES_MAX,
    TopicTraced,
    encode,
    key_of,
    mode_of,
    prefix_of,
)

if TYPE_CHECKING:
    from kernel.api.client import Client
    from kernel.api.model import TopicInfo


def known_mode(client: Client, topic: TopicInfo) -> TraceMode:
    """Which messages of a topic are traced."""
    key = key_of(topic.tenant, topic.name)
    return mode_of(topic, client.records(key).get(key))


async def put_mode(client: Client, topic: TopicInfo, mode: TraceMode) -> None:
    """Have messages of a topic traced. Raises KernelError: NOT_ALLOWED (it is not kept),
    LIMIT_EXCEEDED, ALREADY_EXISTS (somebody else has set it meanwhile).
    """
    if not topic.options.durable:
        message = f"topic {topic.name} is in memory only, and is not traced"
        raise KernelError(Code.NOT_ALLOWED, message)
    key, records = key_of(topic.tenant, topic.name), client.records(PREFIX)
    version = records[key][0] if key in records else 0
    if mode is TraceMode.OFF:
        if key in records:
            await client.administer(PutRecord(key, None, version))
        return
    own = prefix_of(topic.tenant)
    if key not in records and len(records) >= TRACES_MAX:
        raise KernelError(Code.LIMIT_EXCEEDED, f"{TRACES_MAX} topics are traced already")
    if key not in records and sum(each.startswith(own) for each in records) >= TENANT_TRACES_MAX:
        message = f"{TENANT_TRACES_MAX} topics of the tenant are traced already"
        raise KernelError(Code.LIMIT_EXCEEDED, message)
    await client.administer(PutRecord(key, encode(TopicTraced(topic.id, mode)), version))
