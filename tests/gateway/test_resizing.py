"""A topic gets more queues, and fewer, while real clients use it (ADR 31)."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pika
import pytest

from tests.sqs_client import sqs_client

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.gateway.conftest import Ran
    from tests.gateway.serving import Process

    Weir = Callable[..., Ran]

SIZES = (4, 1)
LOAD_S = 0.5
"""How long clients publish and consume before each resize, and behind the last."""


def resized(node: Process, name: str, sizes: tuple[int, ...], *, spread: bool = False) -> None:
    """Resize a queue that is in use."""
    for size in sizes:
        time.sleep(LOAD_S)
        asked = {"queues": size, "by_key": True, "spread": spread}
        found = node.api("POST", f"/topics/{name}/resize", asked)
        assert found.status == 200, found.body
        taking = [each["raft_group"] for each in found.json["queues"] if not each["sealed"]]
        # One more in each Raft group that it was in, for what is stored once only.
        assert len(taking) - size in (range(1, 3) if spread else (0,))
        assert not spread or len(set(taking)) > 1
    time.sleep(LOAD_S)


def test_what_is_ordered_as_one_queue_is_resized_only_if_that_is_said(
    node: Process, weir: Weir
) -> None:
    weir("queue", "create", "s-plain")
    refused = weir("topic", "resize", "s-plain", "--queues", "4")
    assert refused.code == 1, refused.code
    assert "in the order of its one queue" in refused.err
    weir("queue", "create", "s-ranked", "--max-priority", "3")
    ranked = weir("topic", "resize", "s-ranked", "--queues", "4", "--by-key")
    assert "it has priorities" in ranked.err
    weir("topic", "create", "s-stream")
    assert "it is a stream" in weir("topic", "resize", "s-stream", "--queues", "4").err
    assert node.api("POST", "/topics/s-plain/resize", {"queues": 300}).status == 400
    shown = node.api("POST", "/topics/s-plain/resize", {"queues": 2, "by_key": True}).json
    assert [(each["number"], each["sealed"]) for each in shown["queues"]] == [
        (0, True),
        (1, False),
        (2, False),
    ]
    events = node.api("GET", "/events?limit=1000").json["events"]
    told = [each["facts"] for each in events if each["event"] == "topic resized"]
    assert told[-1] == {
        "tenant": "default",
        "topic": "s-plain",
        "before": 1,
        "queues": 2,
        "made": [1, 2],
        "sealed": [0],
        "unlogged": 0,
    }


def test_messages_are_told_by_the_number_of_their_queue(node: Process, weir: Weir) -> None:
    weir("queue", "create", "s-numbers")
    for size in (2, 1):
        asked = {"queues": size, "by_key": True}
        queues = node.api("POST", "/topics/s-numbers/resize", asked).json["queues"]
    (number,) = [each["number"] for each in queues if not each["sealed"]]
    assert number > 0
    sent = node.api("POST", "/topics/s-numbers/messages", {"body": "one"}).json
    assert sent["queue"] == number
    (shown,) = node.api("GET", "/topics/s-numbers/messages").json["messages"]
    receive = "/topics/s-numbers/groups/default/receive"
    (leased,) = node.api("POST", receive, {"wait_ms": 5_000}).json["messages"]
    assert shown["queue"] == leased["message"]["queue"] == number


def test_a_size_says_how_many_queues_there_are(node: Process, weir: Weir) -> None:
    weir("queue", "create", "s-sized")
    for size, count in (("large", 20), ("messages=3000,bytes=25e6", 3), ("small", 1)):
        found = weir("topic", "resize", "s-sized", "--size", size, "--by-key")
        assert found.code == 0, found.err
        queues = node.api("GET", "/topics/s-sized").json["queues"]
        assert sum(not each["sealed"] for each in queues) == count
    assert "there is no size 'huge'" in weir("topic", "resize", "s-sized", "--size", "huge").err
    for given in ((), ("--size", "small", "--queues", "2"), ("--size", "messages=many")):
        assert weir("topic", "resize", "s-sized", *given).code == 2
    for body in ({}, {"queues": 2, "size": "small"}, {"size": {}}, {"size": {"messages": 1e9}}):
        assert node.api("POST", "/topics/s-sized/resize", body).status == 400, body


def test_a_size_from_one_to_another_is_set_shown_and_taken_away(node: Process, weir: Weir) -> None:
    weir("queue", "create", "s-auto")
    size = ("topic", "size", "s-auto")
    refused = weir(*size, "--min", "small", "--max", "large")
    assert "in the order of its one queue" in refused.err
    assert node.api("GET", "/topics/s-auto").json["size"] is None
    found = weir(*size, "--min", "messages=4000", "--max", "messages=90000", "--by-key")
    assert found.code == 0, found.err
    shown = node.api("GET", "/topics/s-auto").json
    assert sum(not each["sealed"] for each in shown["queues"]) == 2
    assert shown["size"] == {
        "min": {"messages": 4000.0, "bytes": 0.0},
        "max": {"messages": 90000.0, "bytes": 0.0},
        "by_key": True,
        "spread": False,
        "above": "serve",
        "now": {"messages": 5000.0, "bytes": 0.0},
    }
    for least, most in (("small", "huge"), ("large", "small"), ("messages=1", "bytes=1e6")):
        assert weir(*size, "--min", least, "--max", most, "--by-key").code == 2
    for given in ((), ("--min", "small"), ("--off", "--max", "small", "--min", "small")):
        assert weir(*size, *given).code == 2
    assert weir(*size, "--off").code == 0
    assert node.api("GET", "/topics/s-auto").json["size"] is None
    assert weir(*size, "--off").code != 0


def test_amqp_clients_lose_nothing_and_hear_of_nothing(node: Process, weir: Weir) -> None:
    weir("queue", "create", "s-amqp")
    sent, got, over = [0], set[bytes](), threading.Event()

    def publish() -> None:
        connection = node.amqp()
        channel = connection.channel()
        channel.confirm_delivery()
        while not over.is_set():
            channel.basic_publish(
                "", "s-amqp", b"%d" % sent[0], pika.BasicProperties(delivery_mode=2)
            )
            sent[0] += 1
        connection.close()

    publisher = threading.Thread(target=publish)
    publisher.start()
    connection = node.amqp()
    channel = connection.channel()
    resizing = threading.Thread(target=resized, args=(node, "s-amqp", SIZES))
    resizing.start()
    quiet = 0
    for method, _, body in channel.consume("s-amqp", inactivity_timeout=0.3):
        if method is None:
            quiet += 1
            assert quiet < 30
            if over.is_set():
                break
        else:
            got.add(body)
            channel.basic_ack(method.delivery_tag)
        if not resizing.is_alive() and not over.is_set():
            over.set()
            publisher.join()
    connection.close()
    assert sent[0] > 20
    assert got == {b"%d" % each for each in range(sent[0])}


@pytest.mark.parametrize("spread", [False, True])
def test_sqs_fifo_groups_keep_their_order_and_their_repeats(
    node: Process, weir: Weir, spread: bool
) -> None:
    name = f"s-groups-{spread:d}.fifo"
    made = weir("queue", "create", name, "--queues", "2", "--deduplication", "5m")
    assert made.code == 0, made.err
    assert weir("group", "set", name, "default", "--ordered").code == 0
    sqs: Any = sqs_client(f"http://127.0.0.1:{node.listeners['sqs.http']}")
    attributes = {
        "FifoQueue": "true",
        "DeduplicationScope": "messageGroup",
        "FifoThroughputLimit": "perMessageGroupId",
    }
    url = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    over = threading.Event()
    numbers: dict[str, list[int]] = defaultdict(list)
    sent = [0]

    def publish() -> None:
        while not over.is_set():
            at = sent[0]
            message = {"MessageGroupId": f"g{at % 5}", "MessageDeduplicationId": f"{at}"}
            first = sqs.send_message(QueueUrl=url, MessageBody=f"{at}", **message)
            numbers[f"g{at % 5}"].append(int(first["SequenceNumber"]))
            again = sqs.send_message(QueueUrl=url, MessageBody="again", **message)
            assert again["SequenceNumber"] == first["SequenceNumber"]
            sent[0] += 1

    publisher = threading.Thread(target=publish)
    publisher.start()
    asked = {"spread": spread}
    resizing = threading.Thread(target=resized, args=(node, name, (4, 2)), kwargs=asked)
    resizing.start()
    got: dict[str, list[int]] = defaultdict(list)
    empty = 0
    while empty < 3:
        found = sqs.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=10,
            WaitTimeSeconds=1 if over.is_set() else 0,
            MessageSystemAttributeNames=["MessageGroupId"],
        ).get("Messages", ())
        for each in found:
            got[each["Attributes"]["MessageGroupId"]].append(int(each["Body"]))
            sqs.delete_message(QueueUrl=url, ReceiptHandle=each["ReceiptHandle"])
        if not resizing.is_alive() and not over.is_set():
            over.set()
            publisher.join()
        empty = empty + 1 if over.is_set() and not found else 0
    assert sent[0] > 20
    assert sum(map(len, got.values())) == sent[0]
    assert all(each == sorted(each) for each in got.values())
    assert all(each == sorted(set(each)) for each in numbers.values())
    for at in range(0, sent[0], 7):
        message = {"MessageGroupId": f"g{at % 5}", "MessageDeduplicationId": f"{at}"}
        again = sqs.send_message(QueueUrl=url, MessageBody="again", **message)
        assert int(again["SequenceNumber"]) == numbers[f"g{at % 5}"][at // 5]
    assert "Messages" not in sqs.receive_message(QueueUrl=url, WaitTimeSeconds=1)
