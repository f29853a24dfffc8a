"""Queues as requests see them: found by URL, with rights checked, kept in ready form.

A queue is a kernel topic and its group `default`. SQS sees every topic whose name it can spell, by
whatever protocol it was made, except what belongs to one connection (`hidden`, an owner) and the
server's own (`__…`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from adapters.tree_rights import (
    CONSUME_TOPIC,
    PUBLISH_TOPIC,
    allowed,
    into_topic,
    out_of_topic,
)
from kernel.api.client import PutTopic
from kernel.api.model import DEFAULT_GROUP, GroupOptions, TopicInfo
from kernel.common.errors import NotLoaded
from kernel.common.limits import RESERVED_PREFIXES

from .. import error_codes as errors
from .. import names
from ..error_codes import SqsError
from ..settings import QUEUES_KEPT_MAX
from .ready_queue import Queue

if TYPE_CHECKING:
    from auth.policies.policy_rules import Permission
    from kernel.api.client import Client

    from ..environment import Context

_INTERNAL_PREFIX: Final = "__"


class Queues:
    """Finds queues. Belongs to the event loop."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kept: dict[tuple[str, str], Queue] = {}

    async def topic(self, tenant: str, name: str) -> TopicInfo | None:
        """A topic that SQS may see, by name; None if there is none."""
        topic = await self._topic(tenant, name)
        return topic if topic is not None and is_visible(topic) else None

    async def is_taken(self, tenant: str, name: str) -> bool:
        """Whether a topic has the name, be it visible or not."""
        return await self._topic(tenant, name) is not None

    async def _topic(self, tenant: str, name: str) -> TopicInfo | None:
        try:
            return self._client.topic(tenant, name)
        except NotLoaded:
            await self._client.load(tenant, topics=(name,), routers=())
            return self._client.topic(tenant, name)

    def known(self, context: Context, url: str | None, number: Permission) -> Queue | None:
        """As `find`, without waiting (hot); None: this gateway has to load the name first."""
        name = _name_in(context, url, number)
        try:
            topic = self._client.topic(context.caller.tenant, name)
        except NotLoaded:
            return None
        return self._seen(context, name, topic, number)

    async def find(self, context: Context, url: str | None, number: Permission) -> Queue:
        """The queue of a URL, which the caller may use as `number` says.

        Raises SqsError: AccessDenied, QueueDoesNotExist.
        """
        name = _name_in(context, url, number)
        topic = await self._topic(context.caller.tenant, name)
        return self._seen(context, name, topic, number)

    def _seen(
        self, context: Context, name: str, topic: TopicInfo | None, number: Permission
    ) -> Queue:
        """The queue that a topic is to SQS. Raises QueueDoesNotExist, AccessDenied."""
        queue = self._kept.get((context.caller.tenant, name))
        if queue is None or queue.topic is not topic:
            if topic is None or not is_visible(topic):
                raise SqsError(errors.QUEUE_DOES_NOT_EXIST)
            queue = self._ready(topic)
        if queue.topic.options.tree:
            check_tree(context, number, queue.topic)
        return queue

    async def find_to_consume(self, context: Context, url: str | None, number: Permission) -> Queue:
        """As `find`; makes the group `default` if the topic has none yet (a stream)."""
        queue = await self.find(context, url, number)
        if DEFAULT_GROUP in queue.topic.groups:
            return queue
        groups = {DEFAULT_GROUP: GroupOptions(ordered=queue.is_fifo)}
        async with context.environment.locks.of(queue.topic.tenant, queue.name):
            topic = await self.topic(queue.topic.tenant, queue.name)
            if topic is None:
                raise SqsError(errors.QUEUE_DOES_NOT_EXIST)
            made = await self._client.administer(
                PutTopic(topic.tenant, topic.name, topic.options, groups)
            )
        assert isinstance(made, TopicInfo)
        return self._ready(made)

    def _ready(self, topic: TopicInfo) -> Queue:
        key = (topic.tenant, topic.name)
        queue = self._kept.get(key)
        if queue is None or queue.topic is not topic:
            if len(self._kept) >= QUEUES_KEPT_MAX:
                self._kept.clear()
            queue = self._kept[key] = Queue(topic)
        return queue


def _name_in(context: Context, url: str | None, number: Permission) -> str:
    """The name in a queue URL of the caller's account, which the caller may use as `number` says.

    Raises SqsError: AccessDenied, QueueDoesNotExist.
    """
    assert url is not None, "validation.check_required"
    address = names.parse_queue_url(url)
    if address.account and address.account != context.caller.account:
        raise SqsError(errors.QUEUE_DOES_NOT_EXIST)
    check_right(context, number, address.name)
    return address.name


def is_visible(topic: TopicInfo) -> bool:
    """Whether SQS shows a topic."""
    options = topic.options
    return (
        not options.hidden
        and options.owner is None
        and names.is_queue_name(topic.name)
        and not topic.name.startswith(_INTERNAL_PREFIX)
    )


def check_not_reserved(name: str) -> None:
    """Check the name of a queue to be created. Raises InvalidParameterValue."""
    if name.startswith(RESERVED_PREFIXES):
        raise SqsError(
            errors.INVALID_PARAMETER_VALUE,
            f"The queue name {name} is reserved: it must not begin with "
            f"{', '.join(RESERVED_PREFIXES)}.",
        )


def check_right(context: Context, number: Permission, name: str) -> None:
    """Check that the caller may do something to a queue. Raises AccessDenied."""
    caller = context.caller
    if not caller.rights.allows(number, name):
        raise _denied(context, name)


def check_tree(context: Context, number: Permission, topic: TopicInfo) -> None:
    """Check that the caller may use a queue that is part of the topic tree so, besides the right
    on the queue. Raises AccessDenied.
    """
    needed = into_topic if number == PUBLISH_TOPIC else out_of_topic
    if number in {PUBLISH_TOPIC, CONSUME_TOPIC} and not allowed(
        context.caller.rights, needed(topic.name, topic)
    ):
        raise _denied(context, topic.name)


def _denied(context: Context, name: str) -> SqsError:
    caller = context.caller
    user = f"arn:aws:iam::{caller.account}:user/{caller.rights.principal.name}"
    action = f"sqs:{context.action.lower()}"
    return SqsError(
        errors.ACCESS_DENIED,
        f"User: {user} is not authorized to perform: {action} on resource: "
        f"{context.arn_of(name)} because no policy allows the {action} action",
    )


def all_visible(context: Context) -> list[TopicInfo]:
    """Every queue of the caller's tenant, by name in order; rights are not looked at."""
    caller = context.caller
    topics = context.environment.catalogue.topics(caller.tenant)
    seen = [topic for topic in topics if is_visible(topic)]
    return sorted(seen, key=lambda topic: topic.name)
