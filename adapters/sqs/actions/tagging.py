"""Tags and permissions of a queue: what is kept in its declaration and given back.

AddPermission and RemovePermission edit the attribute Policy. Weir keeps that document for the
tools that write and read it; who may do what is decided by Weir's own policies (`weir policy`),
which hold for all protocols.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from .. import error_codes as errors
from .. import validation
from ..codec.shapes import ACTIONS, ListQueueTagsResult
from ..error_codes import SqsError
from ..gate import CONFIGURE, INSPECT
from ..queues import policies
from ..queues.declaration import declaration_of
from .queues import change_declaration

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernel.api.model import TopicInfo

    from ..codec.shapes import (
        AddPermissionRequest,
        QueueRequest,
        RemovePermissionRequest,
        TagQueueRequest,
        UntagQueueRequest,
    )
    from ..environment import Context

PERMISSION_ACTIONS_MAX: Final = 7
"""AWS's limit (SQS API, AddPermission)."""

SHARED_ACTIONS: Final = frozenset(
    {
        "*",
        "ChangeMessageVisibility",
        "DeleteMessage",
        "GetQueueAttributes",
        "GetQueueUrl",
        "ListDeadLetterSourceQueues",
        "PurgeQueue",
        "ReceiveMessage",
        "SendMessage",
    }
)
"""What AWS lets other accounts do; the batches of an action come with it."""

Statement = dict[str, Any]
"""One statement of a policy: JSON that others may have written."""


# --- tags --------------------------------------------------------------------------------------


async def tag_queue(context: Context, request: TagQueueRequest) -> None:
    """Add tags, or change their values."""
    tags = request.tags or {}

    def added(topic: TopicInfo) -> dict[str, str]:
        existing = declaration_of(topic.options).tags
        validation.check_tags(tags, existing)
        return existing | tags

    await _change_tags(context, request.queue_url, added)


async def untag_queue(context: Context, request: UntagQueueRequest) -> None:
    """Remove tags; those that are not there are none the less gone."""
    keys = request.tag_keys or []
    validation.check_tag_keys(keys)

    def removed(topic: TopicInfo) -> dict[str, str]:
        existing = declaration_of(topic.options).tags
        return {key: value for key, value in existing.items() if key not in keys}

    await _change_tags(context, request.queue_url, removed)


async def _change_tags(
    context: Context, url: str | None, tags_of: Callable[[TopicInfo], dict[str, str]]
) -> None:
    environment = context.environment
    queue = await environment.queues.find(context, url, CONFIGURE)
    async with environment.locks.of(queue.topic.tenant, queue.name):
        topic = await _still_there(context, queue.topic)
        await change_declaration(context, topic, {}, tags=tags_of(topic))


async def list_queue_tags(context: Context, request: QueueRequest) -> ListQueueTagsResult:
    """All tags of a queue."""
    queue = await context.environment.queues.find(context, request.queue_url, INSPECT)
    return ListQueueTagsResult(declaration_of(queue.topic.options).tags)


# --- permissions -------------------------------------------------------------------------------


async def add_permission(context: Context, request: AddPermissionRequest) -> None:
    """Add a statement with this label to the queue's policy."""
    label = request.label or ""
    if not validation.is_batch_id(label):
        reason = (
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length."
        )
        raise errors.invalid_parameter(label, "Label", reason)
    actions, accounts = request.actions or [], request.aws_account_ids or []
    _check_permission(actions, accounts)

    def added(statements: list[Statement], arn: str) -> list[Statement]:
        if any(statement.get("Sid") == label for statement in statements):
            raise errors.invalid_parameter(label, "Label", "Already exists.")
        return [*statements, _statement(label, actions, accounts, arn)]

    await _change_policy(context, request.queue_url, added)


async def remove_permission(context: Context, request: RemovePermissionRequest) -> None:
    """Remove the statement with this label from the queue's policy."""
    label = request.label or ""

    def removed(statements: list[Statement], _: str) -> list[Statement]:
        kept = [statement for statement in statements if statement.get("Sid") != label]
        if len(kept) == len(statements):
            raise errors.invalid_parameter(label, "Label", "can't find label.")
        return kept

    await _change_policy(context, request.queue_url, removed)


def _check_permission(actions: Sequence[str], accounts: Sequence[str]) -> None:
    if not actions:
        raise errors.missing_parameter("ActionName")
    if not accounts:
        raise errors.missing_parameter("AWSAccountId")
    if len(actions) > PERMISSION_ACTIONS_MAX:
        raise SqsError(
            errors.OVER_LIMIT,
            f"{len(actions)} Actions were found, maximum allowed is {PERMISSION_ACTIONS_MAX}.",
        )
    for action in actions:
        if action not in SHARED_ACTIONS:
            reason = (
                "Only the queue owner is allowed to invoke this action."
                if action in ACTIONS and not action.endswith("Batch")
                else "Please refer to the appropriate WSDL for a list of valid actions."
            )
            raise errors.invalid_parameter(f"SQS:{action}", "ActionName", reason)


def _statement(label: str, actions: Sequence[str], accounts: Sequence[str], arn: str) -> Statement:
    users = [f"arn:aws:iam::{account}:root" for account in accounts]
    verbs = [f"SQS:{action}" for action in actions]
    return {
        "Sid": label,
        "Effect": "Allow",
        "Principal": {"AWS": users[0] if len(users) == 1 else users},
        "Action": verbs[0] if len(verbs) == 1 else verbs,
        "Resource": arn,
    }


async def _change_policy(
    context: Context,
    url: str | None,
    statements_of: Callable[[list[Statement], str], list[Statement]],
) -> None:
    environment = context.environment
    queue = await environment.queues.find(context, url, CONFIGURE)
    arn = context.arn_of(queue.name)
    async with environment.locks.of(queue.topic.tenant, queue.name):
        topic = await _still_there(context, queue.topic)
        text = declaration_of(topic.options).attributes.get("Policy")
        document: dict[str, Any] = (
            msgspec.json.decode(text)
            if text
            else {"Version": "2008-10-17", "Id": f"{arn}/SQSDefaultPolicy", "Statement": []}
        )
        found = document["Statement"]
        statements = statements_of([found] if isinstance(found, dict) else found, arn)
        document["Statement"] = statements
        changed = msgspec.json.encode(document).decode() if statements else ""
        if changed:
            policies.check_policy(changed)
        await change_declaration(context, topic, {"Policy": changed})


async def _still_there(context: Context, topic: TopicInfo) -> TopicInfo:
    """The topic as it is now that its lock is held. Raises QueueDoesNotExist."""
    now = await context.environment.queues.topic(topic.tenant, topic.name)
    if now is None:
        raise SqsError(errors.QUEUE_DOES_NOT_EXIST)
    return now
