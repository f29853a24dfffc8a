"""Sending, receiving, deleting, visibility: through boto3, against a whole service."""

from __future__ import annotations

import hashlib
import threading
import time

import pytest
from botocore.exceptions import ClientError

from adapters.sqs.origin import ORIGIN_BYTE
from kernel.broker.group_state.usage import Verb, counts
from tests.adapters.sqs.service import Service

BODY = 'héllo\r\n\t"wörld" <&> 😀'


def receive(sqs, url: str, **options):
    """Messages that are there, asked for with everything they have."""
    options.setdefault("MaxNumberOfMessages", 10)
    result = sqs.receive_message(
        QueueUrl=url,
        MessageAttributeNames=["All"],
        MessageSystemAttributeNames=["All"],
        **options,
    )
    return result.get("Messages", [])


def code_of(caught) -> str:
    return caught.value.response["Error"]["Code"]


def figures(sqs, url: str) -> tuple[int, int, int]:
    """(ready, in flight, delayed)."""
    names = ["", "NotVisible", "Delayed"]
    asked = ["ApproximateNumberOfMessages" + name for name in names]
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=asked)["Attributes"]
    ready, in_flight, delayed = (int(found[name]) for name in asked)
    return ready, in_flight, delayed


# --- sending and receiving ---------------------------------------------------------------------


def test_a_message_comes_back_as_it_was_sent(sqs, make_queue) -> None:
    url = make_queue()
    attributes = {
        "text": {"DataType": "String.label", "StringValue": "tést"},
        "number": {"DataType": "Number", "StringValue": "12.50"},
        "bytes": {"DataType": "Binary", "BinaryValue": bytes(range(256))},
    }
    trace = "Root=1-5759e988-bd862e3fe1be46a994272793"
    before_ms = int(time.time() * 1000)
    sent = sqs.send_message(
        QueueUrl=url,
        MessageBody=BODY,
        MessageAttributes=attributes,
        MessageSystemAttributes={"AWSTraceHeader": {"DataType": "String", "StringValue": trace}},
    )
    assert sent["MD5OfMessageBody"] == hashlib.md5(BODY.encode()).hexdigest()
    assert "SequenceNumber" not in sent
    (message,) = receive(sqs, url)
    assert message["Body"] == BODY
    assert message["MessageId"] == sent["MessageId"]
    assert message["MessageAttributes"] == attributes
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    system = message["Attributes"]
    assert system["AWSTraceHeader"] == trace
    assert system["SenderId"] == "guest"
    assert system["ApproximateReceiveCount"] == "1"
    assert before_ms <= int(system["SentTimestamp"]) <= time.time() * 1000
    first_ms = int(system["ApproximateFirstReceiveTimestamp"])
    assert int(system["SentTimestamp"]) <= first_ms <= time.time() * 1000
    assert set(system) == {
        "AWSTraceHeader",
        "SenderId",
        "SentTimestamp",
        "ApproximateReceiveCount",
        "ApproximateFirstReceiveTimestamp",
    }


def test_only_what_is_asked_for_comes_back(sqs, make_queue) -> None:
    url = make_queue()
    attributes = {
        name: {"DataType": "String", "StringValue": name} for name in ("a.one", "a.two", "b")
    }
    for _ in range(3):
        sqs.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=attributes)
    (nothing,) = sqs.receive_message(QueueUrl=url)["Messages"]
    assert set(nothing) == {"MessageId", "ReceiptHandle", "MD5OfBody", "Body"}
    (some,) = sqs.receive_message(
        QueueUrl=url, MessageAttributeNames=["a.*"], AttributeNames=["SenderId"]
    )["Messages"]
    assert set(some["MessageAttributes"]) == {"a.one", "a.two"}
    assert set(some["Attributes"]) == {"SenderId"}
    (one,) = sqs.receive_message(QueueUrl=url, MessageAttributeNames=["b"])["Messages"]
    assert set(one["MessageAttributes"]) == {"b"}


def test_the_largest_message_there_may_be(sqs, make_queue) -> None:
    url = make_queue()
    body = "x" * 1_048_576
    sqs.send_message(QueueUrl=url, MessageBody=body)
    assert receive(sqs, url)[0]["Body"] == body
    with pytest.raises(ClientError) as caught:
        sqs.send_message(QueueUrl=url, MessageBody=body + "x")
    assert code_of(caught) == "InvalidParameterValue"


def test_send_message_refuses_what_the_queue_does_not_take(sqs, make_queue) -> None:
    url = make_queue(MaximumMessageSize="1024")
    for message, code in (
        ({"MessageBody": "x" * 1025}, "InvalidParameterValue"),
        ({"MessageBody": ""}, "MissingParameter"),
        ({"MessageBody": "\x00"}, "InvalidMessageContents"),
        ({"MessageBody": "x", "DelaySeconds": 901}, "InvalidParameterValue"),
        ({"MessageBody": "x", "MessageDeduplicationId": "d"}, "InvalidParameterValue"),
    ):
        with pytest.raises(ClientError) as caught:
            sqs.send_message(QueueUrl=url, **message)
        assert code_of(caught) == code, message
    assert figures(sqs, url) == (0, 0, 0)


def test_a_group_id_on_a_standard_queue_is_given_back_and_blocks_nothing(sqs, make_queue) -> None:
    url = make_queue()
    for body in "ab":
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="tenant")
    messages = [receive(sqs, url, MaxNumberOfMessages=1)[0] for _ in "ab"]
    assert [message["Attributes"]["MessageGroupId"] for message in messages] == ["tenant"] * 2


def test_ten_messages_at_most_and_in_order_of_sending(sqs, make_queue) -> None:
    url = make_queue()
    for number in range(12):
        sqs.send_message(QueueUrl=url, MessageBody=str(number))
    assert [message["Body"] for message in receive(sqs, url)] == [str(n) for n in range(10)]
    assert [message["Body"] for message in receive(sqs, url)] == ["10", "11"]
    assert receive(sqs, url) == []


def test_receive_message_checks_its_ranges(sqs, make_queue) -> None:
    url = make_queue()
    for options in (
        {"MaxNumberOfMessages": 11},
        {"WaitTimeSeconds": 21},
        {"VisibilityTimeout": 43_201},
    ):
        with pytest.raises(ClientError) as caught:
            sqs.receive_message(QueueUrl=url, **options)
        assert code_of(caught) == "InvalidParameterValue"


def test_calls_are_metered_by_how_they_ended(service: Service, sqs, make_queue) -> None:
    url = make_queue(name="metered")
    sqs.send_message(QueueUrl=url, MessageBody="x" * 5000)
    receive(sqs, url)
    sqs.receive_message(QueueUrl=url)
    with pytest.raises(ClientError):
        sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=11)
    _, send, full, empty, refused = service.meter.told[-5:]
    assert send[:4] == ("default", "publish", "SendMessage", "ok")
    assert send[4] > 5000 > send[5] > 0
    assert full[:4] == ("default", "receive", "ReceiveMessage", "ok")
    assert full[5] > 5000
    assert empty[:4] == ("default", "receive", "ReceiveMessage", "empty")
    assert refused[:4] == ("default", "receive", "ReceiveMessage", "client_error")


def test_messages_are_counted_by_the_store_under_their_protocol(
    service: Service, sqs, make_queue
) -> None:
    url = make_queue(name="counted")
    for size in (10, 5000):
        sqs.send_message(QueueUrl=url, MessageBody="x" * size)
    for message in receive(sqs, url):
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    found = {
        each.verb: (each.origin, each.messages, each.units_4k)
        for replica in service.store.store.replicas()
        for each in counts(replica.state)
        if each.topic == "counted"
    }
    assert found == {
        Verb.PUBLISHED: (ORIGIN_BYTE, 2, 3),
        Verb.ROUTED: (ORIGIN_BYTE, 2, 3),
        Verb.DELIVERED: (ORIGIN_BYTE, 2, 3),
        Verb.ACKED: (ORIGIN_BYTE, 2, 0),
    }


# --- batches -----------------------------------------------------------------------------------


def test_a_batch_fails_in_part(sqs, make_queue) -> None:
    url = make_queue(MaximumMessageSize="1024")
    result = sqs.send_message_batch(
        QueueUrl=url,
        Entries=[
            {"Id": "good", "MessageBody": "good"},
            {"Id": "long", "MessageBody": "x" * 1025},
            {"Id": "odd", "MessageBody": "\x01"},
            {
                "Id": "lie",
                "MessageBody": "not base64!",
                "MessageAttributes": {
                    "weir.encoding": {"DataType": "String", "StringValue": "base64"}
                },
            },
            {"Id": "also-good", "MessageBody": "also", "DelaySeconds": 0},
        ],
    )
    assert [entry["Id"] for entry in result["Successful"]] == ["good", "also-good"]
    failed = {entry["Id"]: (entry["Code"], entry["SenderFault"]) for entry in result["Failed"]}
    assert failed == {
        "long": ("InvalidParameterValue", True),
        "odd": ("InvalidMessageContents", True),
        "lie": ("InvalidParameterValue", True),
    }
    messages = receive(sqs, url)
    assert [message["Body"] for message in messages] == ["good", "also"]
    assert [message["MessageId"] for message in messages] == [
        entry["MessageId"] for entry in result["Successful"]
    ]


def test_a_batch_that_breaks_a_rule_of_batches_sends_nothing(sqs, make_queue) -> None:
    url = make_queue()
    for entries, code in (
        ([], "EmptyBatchRequest"),
        ([{"Id": str(n), "MessageBody": "x"} for n in range(11)], "TooManyEntriesInBatchRequest"),
        ([{"Id": "a", "MessageBody": "x"}] * 2, "BatchEntryIdsNotDistinct"),
        ([{"Id": "a b", "MessageBody": "x"}], "InvalidBatchEntryId"),
        (
            [{"Id": str(n), "MessageBody": "x" * 600_000} for n in range(2)],
            "BatchRequestTooLong",
        ),
    ):
        with pytest.raises(ClientError) as caught:
            sqs.send_message_batch(QueueUrl=url, Entries=entries)
        assert code_of(caught) == f"AWS.SimpleQueueService.{code}"
    assert figures(sqs, url) == (0, 0, 0)


def test_batches_of_deletions_and_visibility_fail_in_part(sqs, make_queue) -> None:
    url = make_queue()
    for body in "abc":
        sqs.send_message(QueueUrl=url, MessageBody=body)
    handles = [message["ReceiptHandle"] for message in receive(sqs, url)]
    changed = sqs.change_message_visibility_batch(
        QueueUrl=url,
        Entries=[
            {"Id": "now", "ReceiptHandle": handles[0], "VisibilityTimeout": 0},
            {"Id": "later", "ReceiptHandle": handles[1], "VisibilityTimeout": 60},
            {"Id": "far", "ReceiptHandle": handles[2], "VisibilityTimeout": 43_201},
            {"Id": "odd", "ReceiptHandle": "nonsense", "VisibilityTimeout": 1},
            {"Id": "mute", "ReceiptHandle": handles[2]},
        ],
    )
    assert [entry["Id"] for entry in changed["Successful"]] == ["now", "later"]
    assert {entry["Id"]: entry["Code"] for entry in changed["Failed"]} == {
        "far": "InvalidParameterValue",
        "odd": "ReceiptHandleIsInvalid",
        "mute": "MissingParameter",
    }
    assert [message["Body"] for message in receive(sqs, url)] == ["a"]
    deleted = sqs.delete_message_batch(
        QueueUrl=url,
        Entries=[
            {"Id": "b", "ReceiptHandle": handles[1]},
            {"Id": "odd", "ReceiptHandle": "nonsense"},
            {"Id": "c", "ReceiptHandle": handles[2]},
        ],
    )
    assert [entry["Id"] for entry in deleted["Successful"]] == ["b", "c"]
    assert [entry["Code"] for entry in deleted["Failed"]] == ["ReceiptHandleIsInvalid"]
    assert figures(sqs, url) == (0, 1, 0)


# --- delays ------------------------------------------------------------------------------------


def test_a_delayed_message_comes_when_it_is_due(sqs, make_queue) -> None:
    url = make_queue()
    start = time.monotonic()
    sqs.send_message(QueueUrl=url, MessageBody="late", DelaySeconds=1)
    sqs.send_message(QueueUrl=url, MessageBody="now")
    assert [message["Body"] for message in receive(sqs, url)] == ["now"]
    assert figures(sqs, url) == (0, 1, 1)
    assert [message["Body"] for message in receive(sqs, url, WaitTimeSeconds=5)] == ["late"]
    assert 0.95 <= time.monotonic() - start < 3


def test_the_delay_of_the_queue_holds_unless_the_message_has_its_own(sqs, make_queue) -> None:
    url = make_queue(DelaySeconds="60")
    sqs.send_message(QueueUrl=url, MessageBody="queue's")
    sqs.send_message(QueueUrl=url, MessageBody="own", DelaySeconds=0)
    assert [message["Body"] for message in receive(sqs, url)] == ["own"]
    assert figures(sqs, url) == (0, 1, 1)


# --- deletion ----------------------------------------------------------------------------------


def test_deleting_twice_succeeds(sqs, make_queue) -> None:
    url = make_queue()
    sqs.send_message(QueueUrl=url, MessageBody="x")
    handle = receive(sqs, url)[0]["ReceiptHandle"]
    for _ in range(2):
        sqs.delete_message(QueueUrl=url, ReceiptHandle=handle)
    assert figures(sqs, url) == (0, 0, 0)


def test_a_handle_deletes_after_its_timeout_unless_somebody_else_has_the_message(
    sqs, make_queue
) -> None:
    url = make_queue()
    for body in "ab":
        sqs.send_message(QueueUrl=url, MessageBody=body)
    stale, taken = receive(sqs, url, VisibilityTimeout=1)
    sqs.change_message_visibility(
        QueueUrl=url, ReceiptHandle=taken["ReceiptHandle"], VisibilityTimeout=0
    )
    (again,) = receive(sqs, url, VisibilityTimeout=60)
    time.sleep(1.2)
    assert figures(sqs, url) == (1, 1, 0)
    # Both calls succeed on a standard queue; only the first deletes.
    sqs.delete_message(QueueUrl=url, ReceiptHandle=stale["ReceiptHandle"])
    sqs.delete_message(QueueUrl=url, ReceiptHandle=taken["ReceiptHandle"])
    assert figures(sqs, url) == (0, 1, 0)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=again["ReceiptHandle"])
    assert figures(sqs, url) == (0, 0, 0)


def test_a_handle_of_another_queue_or_of_nothing_is_invalid(sqs, make_queue) -> None:
    url, other = make_queue(), make_queue()
    sqs.send_message(QueueUrl=url, MessageBody="x")
    handle = receive(sqs, url)[0]["ReceiptHandle"]
    for queue, bad in ((other, handle), (url, "nonsense")):
        with pytest.raises(sqs.exceptions.ReceiptHandleIsInvalid) as caught:
            sqs.delete_message(QueueUrl=queue, ReceiptHandle=bad)
        assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 404
    assert figures(sqs, url) == (0, 1, 0)


# --- long polls --------------------------------------------------------------------------------


def test_a_long_poll_ends_when_a_message_comes(service: Service, sqs, make_queue) -> None:
    url = make_queue()
    sender = service.client()
    sent: list[float] = []

    def send() -> None:
        time.sleep(0.3)
        sent.append(time.monotonic())
        sender.send_message(QueueUrl=url, MessageBody="wake up")

    thread = threading.Thread(target=send)
    thread.start()
    (message,) = receive(sqs, url, WaitTimeSeconds=20)
    woken = time.monotonic()
    thread.join()
    sender.close()
    assert message["Body"] == "wake up"
    assert woken - sent[0] < 1


def test_one_message_wakes_one_of_many_long_polls(service: Service, sqs, make_queue) -> None:
    url = make_queue()
    clients = [service.client() for _ in range(4)]
    results: list[int] = []
    threads = [
        threading.Thread(
            target=lambda client=client: results.append(
                len(receive(client, url, WaitTimeSeconds=2))
            )
        )
        for client in clients
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    sqs.send_message(QueueUrl=url, MessageBody="for one")
    for thread in threads:
        thread.join()
    for client in clients:
        client.close()
    assert sorted(results) == [0, 0, 0, 1]


def test_the_wait_of_the_queue_holds_unless_the_request_has_its_own(sqs, make_queue) -> None:
    url = make_queue(ReceiveMessageWaitTimeSeconds="1")
    start = time.monotonic()
    assert receive(sqs, url) == []
    assert 0.9 < time.monotonic() - start < 3
    start = time.monotonic()
    assert receive(sqs, url, WaitTimeSeconds=0) == []
    assert time.monotonic() - start < 0.5
