"""RocketMQ's rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.adapters.rocketmq.support import endpoints, message, resource, service_pb2
from tests.rights.rows import Row
from tests.rights.site import ROOT, Actor, Refused, in_thread

FORBIDDEN = 40300
OK = 20000
TRANSACTION = 4
COMMIT = 1
IPV4 = 1

_SEND, _RECEIVE = "the rights of SendMessage", "the rights of ReceiveMessage"

NO_RIGHT_OF_ITS_OWN = {
    "Heartbeat": "of a client that says what it is; what it consumes is asked for elsewhere",
    "Telemetry": "topics that the client may not use are left out of what is answered",
    "NotifyClientTermination": "of one's own client id",
    "normal messages": _SEND,
    "FIFO messages": _SEND,
    "delayed messages": _SEND,
    "priority messages": _SEND,
    "transactional messages": _SEND,
    "tag filters": _RECEIVE,
    "SQL92 filters": _RECEIVE,
    "dead letters": "a group's dead-letter topic is the group's: consume group",
    "leases of push consumers": _RECEIVE,
    "message id deduplication": _SEND,
}


def checked(answer: Any) -> Any:
    """An answer that is no refusal."""
    _check(answer.status.code, answer.status.message)
    return answer


def _check(code: int, text: str = "") -> None:
    if code == FORBIDDEN:
        raise Refused(text)
    assert code == OK, (code, text)


def topic(kind: str = "normal", *, tree: bool = False) -> Callable[[Actor], object]:
    """A topic of the row's name."""

    def do(who: Actor) -> None:
        body = {"name": who("{n}"), "type": kind, "tree": tree}
        who.site.admin("POST", "/topics", body)

    return do


def send(who: Actor) -> None:
    """A message that is as simple as can be."""
    checked(who.rocketmq.send(message(who("{n}"))))


def send_with_tag(who: Actor) -> None:
    """One that is looked at field by field."""
    checked(who.rocketmq.send(message(who("{n}"), tag="t")))


def prepare(who: Actor) -> Any:
    """A transactional message."""
    sent = message(who("{n}"), message_type=TRANSACTION)
    return checked(who.rocketmq.send(sent)).entries[0].transaction_id


def end(who: Actor) -> None:
    """The end of a transaction that somebody who may has begun."""
    ident = _as_root(who, prepare)
    request = service_pb2.EndTransactionRequest(
        topic=resource(who("{n}")), transaction_id=ident, resolution=COMMIT
    )
    checked(who.rocketmq.call("EndTransaction", request))


def receive(who: Actor) -> None:
    """One receive."""
    found = who.rocketmq.receive(who("{n}"), who("{n}-g"))
    if found.code == FORBIDDEN:
        raise Refused(found.text)


def held(who: Actor) -> Callable[[], bool]:
    """A receive that waits, which ends with FORBIDDEN."""

    def poll() -> None:
        found = who.rocketmq.receive(who("{n}"), who("{n}-g"), wait_s=15)
        assert found.code == FORBIDDEN, found.text

    return in_thread(poll)


def with_handle(act: Callable[[Actor, str], Any]) -> Callable[[Actor], object]:
    """Something with a message that somebody who may has received."""

    def received(root: Actor) -> str:
        root.rocketmq.receive(root("{n}"), root("{n}-g"))
        checked(root.rocketmq.send(message(root("{n}"))))
        found = root.rocketmq.receive(root("{n}"), root("{n}-g"), wait_s=5, batch=1)
        (handle,) = found.handles
        return str(handle)

    return lambda who: checked(act(who, _as_root(who, received)))


def _as_root(who: Actor, do: Callable[[Actor], Any]) -> Any:
    with Actor(who.site, ROOT) as root:
        root.name = who.name
        return do(root)


def forward(who: Actor, handle: str) -> Any:
    """To the dead letters."""
    request = service_pb2.ForwardMessageToDeadLetterQueueRequest(
        topic=resource(who("{n}")),
        group=resource(who("{n}-g")),
        receipt_handle=handle,
        delivery_attempt=1,
        max_delivery_attempts=16,
    )
    return who.rocketmq.call("ForwardMessageToDeadLetterQueue", request)


def ack(who: Actor, handle: str) -> Any:
    return who.rocketmq.ack(who("{n}"), who("{n}-g"), handle)


def change(who: Actor, handle: str) -> Any:
    return who.rocketmq.change(who("{n}"), who("{n}-g"), handle, 20)


def route(who: Actor) -> None:
    """Where the topic is."""
    request = service_pb2.QueryRouteRequest(topic=resource(who("{n}")))
    request.endpoints.CopyFrom(endpoints(IPV4, ("127.0.0.1", 8081)))
    checked(who.rocketmq.call("QueryRoute", request))


def assignment(who: Actor) -> None:
    """Which queues to receive from."""
    request = service_pb2.QueryAssignmentRequest(
        topic=resource(who("{n}")), group=resource(who("{n}-g"))
    )
    request.endpoints.CopyFrom(endpoints(IPV4, ("127.0.0.1", 8081)))
    checked(who.rocketmq.call("QueryAssignment", request))


def pull(who: Actor) -> None:
    """What a queue has kept, from its beginning."""
    found = who.rocketmq.pull(who("{n}"), 0, 0, group=who("{n}-g"))
    if found.code == FORBIDDEN:
        raise Refused("pull")


def held_pull(who: Actor) -> Callable[[], bool]:
    """A pull that waits at the end of a queue, which ends with FORBIDDEN."""

    def poll() -> None:
        found = who.rocketmq.pull(who("{n}"), 0, 0, group=who("{n}-g"), wait_s=15)
        assert found.code == FORBIDDEN, found.code

    return in_thread(poll)


def offset_call(name: str, *, group: bool, **fields: Any) -> Callable[[Actor], object]:
    """A question about offsets, or a change of one."""

    def do(who: Actor) -> None:
        given = dict(fields)
        if group:
            _as_root(who, receive)  # makes the group
            given["group"] = resource(who("{n}-g"))
        request = getattr(service_pb2, f"{name}Request")(**given)
        request.message_queue.topic.name = who("{n}")
        checked(who.rocketmq.call(name, request))

    return do


def recall(who: Actor) -> None:
    """Of a message that somebody who may has sent for later."""

    def sent(root: Actor) -> str:
        later = message(root("{n}"), delivery_ms=int(time.time() * 1000) + 60_000)
        return str(checked(root.rocketmq.send(later)).entries[0].recall_handle)

    request = service_pb2.RecallMessageRequest(
        topic=resource(who("{n}")), recall_handle=_as_root(who, sent)
    )
    checked(who.rocketmq.call("RecallMessage", request))


PUBLISH = ("publish topic:{n}",)
CONSUME = ("consume topic:{n}", "consume group:{n}-g")
INTO_TREE, OUT_OF_TREE = "publish tree:{n}", "consume tree:{n}/#"

ROWS = [
    Row(
        operation="QueryRoute",
        needs=("inspect topic:{n}",),
        also_by=("publish topic:{n}", "consume topic:{n}"),
        before=topic(),
        do=route,
    ),
    Row(operation="QueryAssignment", needs=CONSUME, before=topic(), do=assignment),
    Row(operation="SendMessage", needs=PUBLISH, before=topic(), do=send),
    Row(operation="SendMessage", way="with a tag", needs=PUBLISH, before=topic(), do=send_with_tag),
    Row(
        operation="SendMessage",
        way="a topic in the tree",
        needs=(*PUBLISH, INTO_TREE),
        before=topic(tree=True),
        do=send,
    ),
    Row(
        operation="SendMessage",
        way="with a tag, a topic in the tree",
        needs=(*PUBLISH, INTO_TREE),
        before=topic(tree=True),
        do=send_with_tag,
    ),
    Row(
        operation="SendMessage",
        way="a transactional message",
        needs=PUBLISH,
        before=topic("transaction"),
        do=prepare,
    ),
    Row(operation="EndTransaction", needs=PUBLISH, before=topic("transaction"), do=end),
    Row(operation="ReceiveMessage", needs=CONSUME, before=topic(), do=receive, hold=held),
    Row(
        operation="ReceiveMessage",
        way="a topic in the tree",
        needs=(*CONSUME, OUT_OF_TREE),
        before=topic(tree=True),
        do=receive,
        hold=held,
    ),
    Row(operation="PullMessage", needs=CONSUME, before=topic(), do=pull, hold=held_pull),
    Row(
        operation="PullMessage",
        way="a topic in the tree",
        needs=(*CONSUME, OUT_OF_TREE),
        before=topic(tree=True),
        do=pull,
        hold=held_pull,
    ),
    Row(
        operation="GetOffset",
        needs=CONSUME,
        before=topic(),
        do=offset_call("GetOffset", group=True),
    ),
    Row(
        operation="UpdateOffset",
        needs=CONSUME,
        before=topic(),
        do=offset_call("UpdateOffset", group=True, offset=0),
    ),
    Row(
        operation="QueryOffset",
        needs=("inspect topic:{n}",),
        also_by=("consume topic:{n}",),
        before=topic(),
        do=offset_call("QueryOffset", group=False),
    ),
    Row(operation="RecallMessage", needs=PUBLISH, before=topic("delay"), do=recall),
    Row(operation="AckMessage", needs=CONSUME, before=topic(), do=with_handle(ack)),
    Row(operation="ChangeInvisibleDuration", needs=CONSUME, before=topic(), do=with_handle(change)),
    Row(
        operation="ForwardMessageToDeadLetterQueue",
        needs=CONSUME,
        before=topic(),
        do=with_handle(forward),
    ),
]
