"""SQS's rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.rights.rows import Row
from tests.rights.site import ACCOUNT, ROOT, Actor, Refused, in_thread

_LIKE_A_SEND = "the rights of SendMessage and ReceiveMessage"

NO_RIGHT_OF_ITS_OWN = {
    "Query protocol": "the same actions in another spelling",
    "pre-signed requests": "the same actions, signed elsewhere",
    "long polling": _LIKE_A_SEND,
    "delayed messages": _LIKE_A_SEND,
    "message retention": "an attribute of CreateQueue",
    "FIFO order": _LIKE_A_SEND,
    "FIFO deduplication": _LIKE_A_SEND,
    "deduplication scope messageGroup": _LIKE_A_SEND,
    "fair queues": _LIKE_A_SEND,
    "redrive allow policy": "an attribute of SetQueueAttributes; it narrows, and gives no right",
}


def queue(*names: str, **attributes: str) -> Callable[[Actor], object]:
    """Create queues."""

    def do(who: Actor) -> None:
        for name in names or ("{n}",):
            given = {key: who(value) for key, value in attributes.items()}
            who.sqs.create_queue(QueueName=who(name), Attributes=given)

    return do


def tree_topic(who: Actor) -> None:
    """A queue that is part of the tree."""
    who.site.admin("POST", "/topics", {"name": who("{n}"), "type": "work", "tree": True})


def redrive(who: Actor, target: str) -> str:
    """A RedrivePolicy."""
    return json.dumps({"deadLetterTargetArn": who.arn(target), "maxReceiveCount": 1})


def with_redrive(who: Actor) -> None:
    """Two queues, one with the dead letters of the other."""
    queue("{n}-2")(who)
    who.sqs.create_queue(QueueName=who("{n}"), Attributes={"RedrivePolicy": redrive(who, "{n}-2")})


def on(action: str, name: str = "{n}", **more: Any) -> Callable[[Actor], object]:
    """An action on a queue."""
    return lambda who: getattr(who.sqs, action)(QueueUrl=who.url(name), **more)


def with_handle(action: str, *, batch: bool = False, **more: Any) -> Callable[[Actor], object]:
    """An action on a message that somebody who may has received."""

    def do(who: Actor) -> None:
        root, url = who.site.sqs_of(ROOT), who.url("{n}")
        root.send_message(QueueUrl=url, MessageBody="x")
        (message,) = root.receive_message(QueueUrl=url, WaitTimeSeconds=5)["Messages"]
        entry = {"ReceiptHandle": message["ReceiptHandle"], **more}
        given = {"Entries": [{"Id": "1", **entry}]} if batch else entry
        answer = getattr(who.sqs, action)(QueueUrl=url, **given)
        assert not answer.get("Failed"), answer

    return do


def held(who: Actor) -> Callable[[], bool]:
    """A long poll, which ends with AccessDenied."""

    def poll() -> None:
        with pytest.raises(ClientError, match="AccessDenied"):
            who.sqs.receive_message(QueueUrl=who.url("{n}"), WaitTimeSeconds=20)

    return in_thread(poll)


def listed(who: Actor) -> None:
    """The queue is in the list of those that may be looked at."""
    found = who.sqs.list_queues(QueueNamePrefix=who("{n}")).get("QueueUrls", ())
    if who.url("{n}") not in found:
        raise Refused("it is not listed")


def move(**more: str) -> Callable[[Actor], object]:
    """Begin to move dead letters; the task is over at once."""

    def do(who: Actor) -> None:
        given = {key: who.arn(value) for key, value in more.items()}
        who.sqs.start_message_move_task(SourceArn=who.arn("{n}-2"), **given)

    return do


def cancel(who: Actor) -> None:
    """Cancel a task that somebody who may has begun; that it is over already is no refusal."""
    root = who.site.sqs_of(ROOT)
    for number in range(3):
        root.send_message(QueueUrl=who.url("{n}-2"), MessageBody=f"{number}")
    try:
        handle = root.start_message_move_task(
            SourceArn=who.arn("{n}-2"),
            DestinationArn=who.arn("{n}-3"),
            MaxNumberOfMessagesPerSecond=1,
        )["TaskHandle"]
        who.site.handles[who("{n}")] = handle
    except root.exceptions.ClientError as error:
        if "already a task running" not in str(error):
            raise
    try:
        who.sqs.cancel_message_move_task(TaskHandle=who.site.handles[who("{n}")])
    except who.sqs.exceptions.ClientError as error:
        if "RUNNING" not in str(error).upper() and "active" not in str(error):
            raise


PUBLISH, CONSUME = ("publish topic:{n}",), ("consume topic:{n}",)
CONFIGURE, INSPECT = ("configure topic:{n}",), ("inspect topic:{n}",)
ENTRY = [{"Id": "1", "MessageBody": "x"}]

ROWS = [
    Row(operation="CreateQueue", needs=CONFIGURE, do=queue(), names_tenant=False),
    Row(
        operation="CreateQueue",
        way="with a RedrivePolicy",
        needs=(*CONFIGURE, "publish topic:{n}-2"),
        before=queue("{n}-2"),
        do=lambda who: who.sqs.create_queue(
            QueueName=who("{n}"), Attributes={"RedrivePolicy": redrive(who, "{n}-2")}
        ),
        again=False,
        names_tenant=False,
    ),
    Row(operation="DeleteQueue", needs=CONFIGURE, before=queue(), do=on("delete_queue")),
    Row(
        operation="GetQueueUrl",
        needs=INSPECT,
        before=queue(),
        do=lambda who: who.sqs.get_queue_url(QueueName=who("{n}"), QueueOwnerAWSAccountId=ACCOUNT),
    ),
    Row(operation="ListQueues", needs=INSPECT, before=queue(), do=listed, names_tenant=False),
    Row(
        operation="GetQueueAttributes",
        needs=INSPECT,
        before=queue(),
        do=on("get_queue_attributes", AttributeNames=["All"]),
    ),
    Row(
        operation="SetQueueAttributes",
        needs=CONFIGURE,
        before=queue(),
        do=on("set_queue_attributes", Attributes={"DelaySeconds": "1"}),
    ),
    Row(
        operation="dead-letter queue",
        way="SetQueueAttributes",
        needs=(*CONFIGURE, "publish topic:{n}-2"),
        before=queue("{n}", "{n}-2"),
        do=lambda who: who.sqs.set_queue_attributes(
            QueueUrl=who.url("{n}"), Attributes={"RedrivePolicy": redrive(who, "{n}-2")}
        ),
        again=False,
    ),
    Row(
        operation="PurgeQueue",
        needs=CONSUME,
        before=queue(),
        do=on("purge_queue"),
        again=False,
    ),
    Row(
        operation="TagQueue",
        needs=CONFIGURE,
        before=queue(),
        do=on("tag_queue", Tags={"a": "b"}),
    ),
    Row(
        operation="UntagQueue",
        needs=CONFIGURE,
        before=queue(),
        do=on("untag_queue", TagKeys=["a"]),
    ),
    Row(operation="ListQueueTags", needs=INSPECT, before=queue(), do=on("list_queue_tags")),
    Row(
        operation="AddPermission",
        needs=CONFIGURE,
        before=queue(),
        do=on("add_permission", Label="l", AWSAccountIds=[ACCOUNT], Actions=["SendMessage"]),
        again=False,
    ),
    Row(
        operation="RemovePermission",
        needs=CONFIGURE,
        before=lambda who: (
            queue()(who),
            on("add_permission", Label="l", AWSAccountIds=[ACCOUNT], Actions=["SendMessage"])(who),
        ),
        do=on("remove_permission", Label="l"),
        again=False,
    ),
    Row(
        operation="SendMessage",
        needs=PUBLISH,
        before=queue(),
        do=on("send_message", MessageBody="x"),
    ),
    Row(
        operation="SendMessage",
        way="a topic in the tree",
        needs=(*PUBLISH, "publish tree:{n}"),
        before=tree_topic,
        do=on("send_message", MessageBody="x"),
    ),
    Row(
        operation="SendMessageBatch",
        needs=PUBLISH,
        before=queue(),
        do=on("send_message_batch", Entries=ENTRY),
    ),
    Row(
        operation="SendMessageBatch",
        way="a topic in the tree",
        needs=(*PUBLISH, "publish tree:{n}"),
        before=tree_topic,
        do=on("send_message_batch", Entries=ENTRY),
    ),
    Row(
        operation="ReceiveMessage",
        needs=CONSUME,
        before=queue(),
        do=on("receive_message"),
        hold=held,
    ),
    Row(
        operation="ReceiveMessage",
        way="a topic in the tree",
        needs=(*CONSUME, "consume tree:{n}/#"),
        before=tree_topic,
        do=on("receive_message"),
        hold=held,
    ),
    Row(
        operation="DeleteMessage",
        needs=CONSUME,
        before=queue(),
        do=with_handle("delete_message"),
    ),
    Row(
        operation="DeleteMessageBatch",
        needs=CONSUME,
        before=queue(),
        do=with_handle("delete_message_batch", batch=True),
    ),
    Row(
        operation="ChangeMessageVisibility",
        needs=CONSUME,
        before=queue(),
        do=with_handle("change_message_visibility", VisibilityTimeout=60),
    ),
    Row(
        operation="ChangeMessageVisibilityBatch",
        needs=CONSUME,
        before=queue(),
        do=with_handle("change_message_visibility_batch", batch=True, VisibilityTimeout=60),
    ),
    Row(
        operation="ListDeadLetterSourceQueues",
        needs=INSPECT,
        before=queue(),
        do=on("list_dead_letter_source_queues"),
    ),
    Row(
        operation="StartMessageMoveTask",
        way="back to the source",
        needs=("consume topic:{n}-2", "publish topic:{n}"),
        before=with_redrive,
        do=move(),
    ),
    Row(
        operation="StartMessageMoveTask",
        way="to another queue",
        needs=("consume topic:{n}-2", "publish topic:{n}-3"),
        before=lambda who: (with_redrive(who), queue("{n}-3")(who)),
        do=move(DestinationArn="{n}-3"),
    ),
    Row(
        operation="ListMessageMoveTasks",
        needs=("inspect topic:{n}-2",),
        before=with_redrive,
        do=lambda who: who.sqs.list_message_move_tasks(SourceArn=who.arn("{n}-2")),
    ),
    Row(
        operation="CancelMessageMoveTask",
        needs=("consume topic:{n}-2",),
        before=lambda who: (with_redrive(who), queue("{n}-3")(who)),
        do=cancel,
    ),
]
