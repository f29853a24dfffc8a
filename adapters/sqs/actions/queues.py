"""Actions on queues: create, delete, purge, find, list, attributes.

Durability: CreateQueue, DeleteQueue, PurgeQueue and SetQueueAttributes answer once their change is
in the journal of a majority, by `Client.administer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kernel.api.client import DeleteTopic, PurgeTopic, PutTopic
from kernel.api.model import DEFAULT_GROUP

from .. import error_codes as errors
from .. import names, validation
from ..codec.shapes import (
    GetQueueAttributesResult,
    ListDeadLetterSourceQueuesResult,
    ListQueuesResult,
    QueueUrlResult,
)
from ..error_codes import SqsError
from ..gate import CONFIGURE, CONSUME, INSPECT, PUBLISH
from ..messages import selection
from ..queues import policies, queue_attributes, queue_settings
from ..queues.declaration import Declaration, declaration_of, with_declaration
from ..queues.ready_queues import all_visible, check_not_reserved, check_right, check_tree
from ..settings import DEAD_LETTER_HOPS_MAX, DELETED_RECENTLY_MS, PURGE_INTERVAL_MS
from . import paging

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernel.api.model import TopicInfo

    from ..codec.shapes import (
        CreateQueueRequest,
        GetQueueAttributesRequest,
        GetQueueUrlRequest,
        ListDeadLetterSourceQueuesRequest,
        ListQueuesRequest,
        QueueRequest,
        SetQueueAttributesRequest,
    )
    from ..environment import Context
    from ..queues.policies import RedrivePolicy


# --- creation ----------------------------------------------------------------------------------


async def create_queue(context: Context, request: CreateQueueRequest) -> QueueUrlResult:
    """A queue of that name with those attributes; the one there is, if it was declared so."""
    attributes = validation.check_create_queue(request)
    name = request.queue_name or ""
    check_not_reserved(name)
    check_right(context, CONFIGURE, name)
    environment = context.environment
    tenant = context.caller.tenant
    async with environment.locks.of(tenant, name):
        redrive = await _redrive_of(context, name, attributes)
        topic = await environment.queues.topic(tenant, name)
        if topic is not None:
            await _declare_again(context, topic, attributes, redrive)
        elif await environment.queues.is_taken(tenant, name):
            raise SqsError(
                errors.QUEUE_NAME_EXISTS, "The name is taken by a queue that SQS cannot use."
            )
        else:
            await _create(context, request, attributes, redrive)
    return QueueUrlResult(context.url_of(name))


async def _create(
    context: Context,
    request: CreateQueueRequest,
    attributes: Mapping[str, str],
    redrive: RedrivePolicy | None,
) -> None:
    environment = context.environment
    tenant, name = context.caller.tenant, request.queue_name or ""
    now_ms = environment.clock.wall_ms()
    if environment.settings.deleted_recently and environment.deletions.is_within(
        (tenant, name), DELETED_RECENTLY_MS, now_ms
    ):
        raise SqsError(errors.QUEUE_DELETED_RECENTLY)
    options, group = queue_settings.new_topic(
        attributes,
        redrive,
        fifo=names.is_fifo(name),
        queue_count=environment.settings.queue_count,
    )
    declaration = Declaration(
        attributes=dict(attributes),
        tags=request.tags or {},
        created_s=now_ms // 1000,
        modified_s=now_ms // 1000,
    )
    await environment.client.administer(
        PutTopic(
            tenant,
            name,
            with_declaration(options, declaration),
            {DEFAULT_GROUP: group},
            must_be_new=True,
        )
    )


async def _declare_again(
    context: Context,
    topic: TopicInfo,
    attributes: Mapping[str, str],
    redrive: RedrivePolicy | None,
) -> None:
    """CreateQueue of a name that is there: compared with what SQS declared, if it did."""
    known = declaration_of(topic.options)
    fifo = names.is_fifo(topic.name)
    if known.created_s is not None:
        existing = queue_attributes.defaults(fifo=fifo) | known.attributes
        difference = queue_attributes.first_difference(attributes, existing)
        if difference is not None:
            raise errors.queue_name_exists(difference)
        return
    group = queue_settings.group_of(topic)
    if fifo and not group.ordered:
        # Order cannot be given to messages that are there already.
        raise errors.queue_name_exists("FifoQueue")
    if len(topic.queues) > 1 and queue_attributes.is_deduplicated_as_a_whole(
        queue_attributes.defaults(fifo=fifo) | known.attributes | dict(attributes)
    ):
        raise errors.queue_name_exists("DeduplicationScope")
    now_s = context.environment.clock.wall_ms() // 1000
    declaration = msgspec.structs.replace(
        known,
        attributes=known.attributes | dict(attributes),
        created_s=now_s,
        modified_s=now_s,
    )
    options, group = queue_settings.changed(topic.options, group, attributes, redrive)
    await context.environment.client.administer(
        PutTopic(
            topic.tenant, topic.name, with_declaration(options, declaration), {DEFAULT_GROUP: group}
        )
    )


async def _redrive_of(
    context: Context, name: str, attributes: Mapping[str, str]
) -> RedrivePolicy | None:
    """The RedrivePolicy among attributes of the queue `name`, its target checked.

    Raises AccessDenied, unless the caller may send to the target, or it is the target already;
    InvalidParameterValue: no such target, one that does not let this queue, a circle.
    """
    text = attributes.get("RedrivePolicy")
    if not text:
        return None
    policy = policies.parse_redrive_policy(text, fifo=names.is_fifo(name))
    target = policy.target
    topic = None
    if target.account == context.caller.account:
        queues, tenant = context.environment.queues, context.caller.tenant
        known = await queues.topic(tenant, name)
        is_new = known is None or queue_settings.dead_letter_queue(known) != target.name
        if is_new:
            check_right(context, PUBLISH, target.name)
        topic = await queues.topic(tenant, target.name)
        if is_new and topic is not None:
            check_tree(context, PUBLISH, topic)
    if topic is None:
        raise policies.dead_letter_target_missing(text)
    allowed = declaration_of(topic.options).attributes.get("RedriveAllowPolicy")
    if allowed:
        permission = policies.parse_redrive_allow_policy(allowed)
        if not permission.allows(context.arn_of(name)):
            reason = f"The redrive allow policy of {target.name} does not name this queue."
            raise errors.invalid_parameter(text, "RedrivePolicy", reason)
    await _check_no_circle(context, name, text, topic)
    return policy


async def _check_no_circle(
    context: Context, name: str, text: str, target: TopicInfo | None
) -> None:
    """Check that the dead letters of the queue `name` do not come back to it from `target`.

    AWS lets them go round for ever. The kernel drops a message that comes to a queue which has
    given it up before, so here the second round would lose it. Raises InvalidParameterValue.
    """
    for _ in range(DEAD_LETTER_HOPS_MAX):
        if target is None:
            return
        if target.name == name:
            break
        following = queue_settings.dead_letter_queue(target)
        if following is None:
            return
        target = await context.environment.queues.topic(context.caller.tenant, following)
    reason = (
        "The dead letters of the target come back to this queue, or go through more than "
        f"{DEAD_LETTER_HOPS_MAX} queues."
    )
    raise errors.invalid_parameter(text, "RedrivePolicy", reason)


# --- deletion ----------------------------------------------------------------------------------


async def delete_queue(context: Context, request: QueueRequest) -> None:
    """Delete a queue and its messages; long polls on it end with QueueDoesNotExist."""
    environment = context.environment
    queue = await environment.queues.find(context, request.queue_url, CONFIGURE)
    topic = queue.topic
    async with environment.locks.of(topic.tenant, topic.name):
        await environment.client.administer(DeleteTopic(topic.tenant, topic.name))
    environment.deletions.note((topic.tenant, topic.name), environment.clock.wall_ms())


async def purge_queue(context: Context, request: QueueRequest) -> None:
    """Drop the messages of a queue that nobody has received, once in 60 s."""
    environment = context.environment
    queue = await environment.queues.find_to_consume(context, request.queue_url, CONSUME)
    topic, now_ms = queue.topic, environment.clock.wall_ms()
    if environment.purges.is_within(topic.id, PURGE_INTERVAL_MS, now_ms):
        raise errors.purge_in_progress(topic.name)
    environment.purges.note(topic.id, now_ms)
    await environment.client.administer(
        PurgeTopic(topic.tenant, topic.name, DEFAULT_GROUP, in_flight=True)
    )


# --- finding -----------------------------------------------------------------------------------


async def get_queue_url(context: Context, request: GetQueueUrlRequest) -> QueueUrlResult:
    """The URL of a queue by its name."""
    name, caller = request.queue_name or "", context.caller
    owner = request.queue_owner_aws_account_id
    check_right(context, INSPECT, name)
    if not names.is_queue_name(name) or (owner and owner != caller.account):
        raise SqsError(errors.QUEUE_DOES_NOT_EXIST)
    if await context.environment.queues.topic(caller.tenant, name) is None:
        raise SqsError(errors.QUEUE_DOES_NOT_EXIST)
    return QueueUrlResult(context.url_of(name))


async def list_queues(context: Context, request: ListQueuesRequest) -> ListQueuesResult:
    """URLs of the queues that the caller may inspect, by name in order."""
    prefix = request.queue_name_prefix or ""
    rights = context.caller.rights
    found = [
        topic.name
        for topic in all_visible(context)
        if topic.name.startswith(prefix) and rights.allows(INSPECT, topic.name)
    ]
    page, token = paging.page(found, request.max_results, request.next_token)
    return ListQueuesResult([context.url_of(name) for name in page], token)


async def list_dead_letter_source_queues(
    context: Context, request: ListDeadLetterSourceQueuesRequest
) -> ListDeadLetterSourceQueuesResult:
    """URLs of the queues whose dead letters come to this one, whoever set that."""
    queue = await context.environment.queues.find(context, request.queue_url, INSPECT)
    found = [
        topic.name
        for topic in all_visible(context)
        if queue_settings.dead_letter_queue(topic) == queue.name
    ]
    page, token = paging.page(found, request.max_results, request.next_token)
    return ListDeadLetterSourceQueuesResult([context.url_of(name) for name in page], token)


# --- attributes --------------------------------------------------------------------------------


async def get_queue_attributes(
    context: Context, request: GetQueueAttributesRequest
) -> GetQueueAttributesResult:
    """Those attributes of a queue that are asked for."""
    asked = selection.queue_attribute_names(request.attribute_names)
    queue = await context.environment.queues.find(context, request.queue_url, INSPECT)
    if not asked:
        return GetQueueAttributesResult()
    attributes = await _figures(context, queue.topic)
    attributes |= queue_settings.attributes_of(queue.topic, context.arn_of)
    return GetQueueAttributesResult(selection.select(asked, attributes))


async def _figures(context: Context, topic: TopicInfo) -> dict[str, str]:
    """The attributes that nobody sets."""
    attributes = {"QueueArn": context.arn_of(topic.name)}
    if DEFAULT_GROUP in topic.groups:
        figures = await context.environment.client.statistics(topic, DEFAULT_GROUP)
        counts = (figures.ready, figures.leased, figures.delayed)
    else:
        counts = (0, 0, 0)
    for name, count in zip(("", "NotVisible", "Delayed"), counts, strict=True):
        attributes["ApproximateNumberOfMessages" + name] = str(count)
    declaration = declaration_of(topic.options)
    if declaration.created_s is not None:
        attributes["CreatedTimestamp"] = str(declaration.created_s)
    if declaration.modified_s:
        attributes["LastModifiedTimestamp"] = str(declaration.modified_s)
    return attributes


async def set_queue_attributes(context: Context, request: SetQueueAttributesRequest) -> None:
    """Change attributes of a queue; an empty value takes one back."""
    environment = context.environment
    queue = await environment.queues.find(context, request.queue_url, CONFIGURE)
    tenant, name = queue.topic.tenant, queue.name
    async with environment.locks.of(tenant, name):
        topic = await environment.queues.topic(tenant, name)
        if topic is None:
            raise SqsError(errors.QUEUE_DOES_NOT_EXIST)
        current = queue_settings.attributes_of(topic, context.arn_of)
        asked = request.attributes or {}
        changes = queue_attributes.check_for_set(asked, current, fifo=queue.is_fifo)
        queue_attributes.check_scope(changes, len(topic.queues))
        redrive = await _redrive_of(context, name, changes)
        await change_declaration(context, topic, changes, redrive)


async def change_declaration(
    context: Context,
    topic: TopicInfo,
    changes: Mapping[str, str],
    redrive: RedrivePolicy | None = None,
    tags: Mapping[str, str] | None = None,
) -> None:
    """Write changed attributes, and tags unless None, to a queue whose lock the caller holds.

    An attribute changed to the empty text is taken back.
    """
    known = declaration_of(topic.options)
    merged = known.attributes | dict(changes)
    declaration = msgspec.structs.replace(
        known,
        attributes={name: value for name, value in merged.items() if value},
        tags=known.tags if tags is None else dict(tags),
        modified_s=context.environment.clock.wall_ms() // 1000,
    )
    before = queue_settings.group_of(topic)
    options, group = queue_settings.changed(topic.options, before, changes, redrive)
    # A stream without the group `default` gets it only when there is something to say in it.
    groups = {} if group == before else {DEFAULT_GROUP: group}
    await context.environment.client.administer(
        PutTopic(topic.tenant, topic.name, with_declaration(options, declaration), groups)
    )
