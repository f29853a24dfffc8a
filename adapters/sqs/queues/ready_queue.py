"""One queue in ready form: what each request needs of its settings, read once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import names
from ..validation import SendRules
from .declaration import declaration_of
from .queue_attributes import MESSAGE_BYTES_MAX
from .queue_settings import group_of

if TYPE_CHECKING:
    from kernel.api.client import Client, Destinations
    from kernel.api.model import TopicInfo


class Queue:
    """One queue, as long as its topic is the same object."""

    __slots__ = (
        "_destinations",
        "_destinations_version",
        "delay_ms",
        "fifo_per_group",
        "is_fifo",
        "lease_ms",
        "name",
        "rules",
        "topic",
        "wait_ms",
    )

    def __init__(self, topic: TopicInfo) -> None:
        declared = declaration_of(topic.options).attributes
        self.topic = topic
        self.name = topic.name
        self.is_fifo = names.is_fifo(topic.name)
        self.lease_ms = group_of(topic).lease_ms
        self.delay_ms = int(declared.get("DelaySeconds", "0")) * 1000
        self.wait_ms = int(declared.get("ReceiveMessageWaitTimeSeconds", "0")) * 1000
        self.fifo_per_group = declared.get("DeduplicationScope") == "messageGroup"
        """Deduplication ids count within one message group."""
        self.rules = SendRules(
            fifo=self.is_fifo,
            content_based_deduplication=declared.get("ContentBasedDeduplication") == "true",
            message_bytes_max=min(topic.options.message_bytes_max, MESSAGE_BYTES_MAX),
        )
        self._destinations: Destinations | None = None
        self._destinations_version = -1

    def destinations(self, client: Client) -> Destinations:
        """Where messages to the queue go."""
        version = client.topology_version
        if self._destinations is None or self._destinations_version != version:
            self._destinations = client.to_topic(self.topic)
            self._destinations_version = version
        return self._destinations
