"""FIFO queues, through boto3, against a whole service."""

from __future__ import annotations

import hashlib
import threading
import time

import pytest
from botocore.exceptions import ClientError

from adapters.sqs.settings import SqsSettings
from kernel.api.client import PutTopic
from kernel.api.model import GroupOptions, TopicOptions
from tests.adapters.sqs.service import Service, service_in_thread


def send(sqs, url: str, body: str, group: str = "g", **options):
    options.setdefault("MessageDeduplicationId", body)
    return sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=group, **options)


def receive(sqs, url: str, count: int = 10, **options):
    result = sqs.receive_message(
        QueueUrl=url, MaxNumberOfMessages=count, MessageSystemAttributeNames=["All"], **options
    )
    return result.get("Messages", [])


def bodies(messages) -> list[str]:
    return [message["Body"] for message in messages]


def delete(sqs, url: str, message) -> None:
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def release(sqs, url: str, message) -> None:
    sqs.change_message_visibility(
        QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
    )


# --- order -------------------------------------------------------------------------------------


def test_messages_of_a_group_come_in_order_with_growing_sequence_numbers(sqs, make_queue) -> None:
    url = make_queue(fifo=True)
    sent = [send(sqs, url, f"{number:02d}")["SequenceNumber"] for number in range(10)]
    messages = receive(sqs, url)
    assert bodies(messages) == [f"{number:02d}" for number in range(10)]
    assert [message["Attributes"]["SequenceNumber"] for message in messages] == sent
    assert sent == sorted(set(sent))
    assert all(len(number) == 20 and number.isdigit() for number in sent)
    assert {message["Attributes"]["MessageGroupId"] for message in messages} == {"g"}
    assert [message["Attributes"]["MessageDeduplicationId"] for message in messages] == bodies(
        messages
    )


def test_a_group_is_blocked_while_one_of_its_messages_is_in_flight(sqs, make_queue) -> None:
    url = make_queue(fifo=True)
    for body, group in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a")):
        send(sqs, url, body, group)
    (first,) = receive(sqs, url, 1)
    assert first["Body"] == "a1"
    (other,) = receive(sqs, url)
    assert other["Body"] == "b1"
    assert receive(sqs, url) == []
    delete(sqs, url, first)
    assert bodies(receive(sqs, url, 1)) == ["a2"]
    assert receive(sqs, url) == []


def test_one_receive_may_take_several_of_a_group_and_then_all_must_go(sqs, make_queue) -> None:
    url = make_queue(fifo=True)
    for body in ("1", "2", "3"):
        send(sqs, url, body)
    one, two = receive(sqs, url, 2)
    delete(sqs, url, one)
    assert receive(sqs, url) == []
    delete(sqs, url, two)
    assert bodies(receive(sqs, url)) == ["3"]


def test_a_message_given_back_returns_to_the_head_of_its_group(sqs, make_queue) -> None:
    url = make_queue(fifo=True)
    for body in ("1", "2"):
        send(sqs, url, body)
    (first,) = receive(sqs, url, 1)
    release(sqs, url, first)
    messages = receive(sqs, url)
    assert bodies(messages) == ["1", "2"]
    assert messages[0]["Attributes"]["ApproximateReceiveCount"] == "2"


def test_a_receive_is_filled_from_one_group_before_it_goes_on_to_the_next(sqs, make_queue) -> None:
    """So ten groups that have more are served by ten receives at the same time, not by one."""
    url = make_queue(fifo=True)
    for number in range(12):
        for group in "abcdefghij":
            send(sqs, url, f"{group}{number:02d}", group)
    batches = [bodies(receive(sqs, url, VisibilityTimeout=600)) for _ in range(10)]
    assert batches == [[f"{group}{at:02d}" for at in range(10)] for group in "abcdefghij"]
    assert receive(sqs, url) == []


def test_a_receive_takes_other_groups_when_the_first_has_too_few(sqs, make_queue) -> None:
    url = make_queue(fifo=True)
    for body in ("a1", "b1", "c1", "a2", "b2"):
        send(sqs, url, body, body[0])
    assert bodies(receive(sqs, url)) == ["a1", "a2", "b1", "b2", "c1"]


@pytest.mark.parametrize("ends", ["by itself", "by its holder"])
def test_a_message_whose_visibility_ended_comes_alone_while_later_ones_are_in_flight(
    sqs, make_queue, ends: str
) -> None:
    url = make_queue(fifo=True)
    for body in ("1", "2", "3", "4"):
        send(sqs, url, body)
    one, two, three = receive(sqs, url, 3, VisibilityTimeout=600)
    sqs.change_message_visibility(
        QueueUrl=url,
        ReceiptHandle=one["ReceiptHandle"],
        VisibilityTimeout=1 if ends == "by itself" else 0,
    )
    (again,) = receive(sqs, url, VisibilityTimeout=600, WaitTimeSeconds=5)
    assert again["Body"] == "1"
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"
    for each in (two, three):
        assert receive(sqs, url) == []
        delete(sqs, url, each)
    assert receive(sqs, url) == []
    delete(sqs, url, again)
    assert bodies(receive(sqs, url)) == ["4"]


def test_a_message_whose_visibility_ended_waits_for_an_earlier_one_in_flight(
    sqs, make_queue
) -> None:
    """As AWS does: up to the first that is still invisible, and nothing behind it."""
    url = make_queue(fifo=True)
    for body in ("1", "2", "3"):
        send(sqs, url, body)
    one, two, three = receive(sqs, url)
    for each in (one, three):
        release(sqs, url, each)
    assert bodies(receive(sqs, url)) == ["1"]
    delete(sqs, url, two)
    assert receive(sqs, url) == []


def test_a_group_stays_blocked_while_a_timeout_is_extended(sqs, make_queue) -> None:
    url = make_queue(fifo=True, VisibilityTimeout="1")
    for body in ("1", "2"):
        send(sqs, url, body)
    (first,) = receive(sqs, url, 1)
    sqs.change_message_visibility(
        QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=60
    )
    assert receive(sqs, url, WaitTimeSeconds=2) == []
    delete(sqs, url, first)
    assert bodies(receive(sqs, url)) == ["2"]


def test_a_group_is_free_again_after_the_timeout(sqs, make_queue) -> None:
    url = make_queue(fifo=True, VisibilityTimeout="1")
    for body in ("1", "2"):
        send(sqs, url, body)
    receive(sqs, url, 1)
    assert bodies(receive(sqs, url, WaitTimeSeconds=5)) == ["1", "2"]


def test_an_expired_handle_cannot_delete_but_a_repeated_deletion_is_fine(sqs, make_queue) -> None:
    url = make_queue(fifo=True, VisibilityTimeout="1")
    send(sqs, url, "x")
    (stale,) = receive(sqs, url)
    (fresh,) = receive(sqs, url, WaitTimeSeconds=5)
    with pytest.raises(ClientError) as caught:
        delete(sqs, url, stale)
    assert caught.value.response["Error"]["Code"] == "InvalidParameterValue"
    assert caught.value.response["Error"]["Message"].endswith(
        "Reason: The receipt handle has expired."
    )
    delete(sqs, url, fresh)
    delete(sqs, url, fresh)


def test_an_expired_handle_cannot_delete_though_nobody_else_has_the_message(
    sqs, make_queue
) -> None:
    url = make_queue(fifo=True)
    send(sqs, url, "x")
    (stale,) = receive(sqs, url, VisibilityTimeout=0)
    with pytest.raises(ClientError) as caught:
        delete(sqs, url, stale)
    assert caught.value.response["Error"]["Message"].endswith(
        "Reason: The receipt handle has expired."
    )
    with pytest.raises(ClientError) as caught:
        release(sqs, url, stale)
    assert "not available for visibility timeout change" in str(caught.value)
    (fresh,) = receive(sqs, url)
    delete(sqs, url, fresh)


def test_long_polls_wake_when_a_group_becomes_free(service: Service, sqs, make_queue) -> None:
    url = make_queue(fifo=True)
    for body in ("1", "2"):
        send(sqs, url, body)
    (first,) = receive(sqs, url, 1)
    other = service.client()
    timer = threading.Timer(0.3, delete, (other, url, first))
    timer.start()
    start = time.monotonic()
    assert bodies(receive(sqs, url, WaitTimeSeconds=20)) == ["2"]
    assert time.monotonic() - start < 2
    timer.join()
    other.close()


# --- deduplication -----------------------------------------------------------------------------


def test_a_duplicate_is_answered_with_the_original_and_its_own_digests(sqs, make_queue) -> None:
    url = make_queue(fifo=True)
    original = send(sqs, url, "first", MessageDeduplicationId="d")
    duplicate = send(sqs, url, "other body", MessageDeduplicationId="d")
    assert duplicate["MessageId"] == original["MessageId"]
    assert duplicate["SequenceNumber"] == original["SequenceNumber"]
    assert duplicate["MD5OfMessageBody"] == hashlib.md5(b"other body").hexdigest()
    assert bodies(receive(sqs, url)) == ["first"]


def test_a_duplicate_is_one_after_the_original_was_deleted_too(sqs, make_queue) -> None:
    url = make_queue(fifo=True)
    original = send(sqs, url, "x")
    delete(sqs, url, receive(sqs, url)[0])
    assert send(sqs, url, "x")["MessageId"] == original["MessageId"]
    assert receive(sqs, url) == []


def test_duplicates_within_one_batch(sqs, make_queue) -> None:
    url = make_queue(fifo=True)
    entries = [
        {"Id": str(n), "MessageBody": str(n), "MessageGroupId": "g", "MessageDeduplicationId": d}
        for n, d in enumerate("aba")
    ]
    result = sqs.send_message_batch(QueueUrl=url, Entries=entries)
    ids = {entry["Id"]: entry["MessageId"] for entry in result["Successful"]}
    assert ids["0"] == ids["2"] != ids["1"]
    assert bodies(receive(sqs, url)) == ["0", "1"]


def test_deduplication_by_content(sqs, make_queue) -> None:
    url = make_queue(fifo=True, ContentBasedDeduplication="true")
    sent = [
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=group)
        for body, group in (("same", "a"), ("same", "b"), ("other", "a"))
    ]
    assert sent[0]["MessageId"] == sent[1]["MessageId"] != sent[2]["MessageId"]
    messages = receive(sqs, url)
    assert bodies(messages) == ["same", "other"]
    expected = hashlib.sha256(b"same").hexdigest()
    assert messages[0]["Attributes"]["MessageDeduplicationId"] == expected


def test_deduplication_in_the_scope_of_a_message_group(sqs, make_queue) -> None:
    url = make_queue(
        fifo=True, DeduplicationScope="messageGroup", FifoThroughputLimit="perMessageGroupId"
    )
    sent = [send(sqs, url, "x", group)["MessageId"] for group in "aab"]
    assert sent[0] == sent[1] != sent[2]
    messages = receive(sqs, url)
    assert [message["Attributes"]["MessageGroupId"] for message in messages] == ["a", "b"]
    assert [message["Attributes"]["MessageDeduplicationId"] for message in messages] == ["x", "x"]


def test_what_is_deduplicated_as_a_whole_has_one_kernel_queue(tmp_path) -> None:
    """Each of several would know its own ids only, and a message group stays in one of them."""
    with service_in_thread(tmp_path, SqsSettings(queue_count=4)) as service:
        sqs = service.client()
        url = sqs.create_queue(QueueName="whole.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
        sent = {send(sqs, url, "x", group)["MessageId"] for group in "abcdefgh"}
        assert len(sent) == 1
        assert bodies(receive(sqs, url)) == ["x"]
        scope = {"DeduplicationScope": "messageGroup"}
        parts = sqs.create_queue(QueueName="parts.fifo", Attributes={"FifoQueue": "true", **scope})[
            "QueueUrl"
        ]
        whole = {"DeduplicationScope": "queue"}
        with pytest.raises(ClientError) as caught:
            sqs.set_queue_attributes(QueueUrl=parts, Attributes=whole)
        assert caught.value.response["Error"]["Code"] == "InvalidAttributeValue"
        assert "one queue, and this one has 4" in caught.value.response["Error"]["Message"]
        sqs.set_queue_attributes(QueueUrl=parts, Attributes=scope)
        sqs.set_queue_attributes(QueueUrl=url, Attributes=whole)
        sqs.close()


def test_a_topic_of_several_queues_is_no_queue_that_is_deduplicated_as_a_whole(tmp_path) -> None:
    with service_in_thread(tmp_path) as service:
        sqs = service.client()
        options = TopicOptions(queues=4, deduplication_ms=300_000)
        put = PutTopic("default", "made.fifo", options, {"default": GroupOptions(ordered=True)})
        service.run(lambda: service.kernel.administer(put))
        fifo = {"FifoQueue": "true"}
        with pytest.raises(ClientError) as caught:
            sqs.create_queue(QueueName="made.fifo", Attributes=fifo)
        assert caught.value.response["Error"]["Code"] == "QueueAlreadyExists"
        assert "DeduplicationScope" in caught.value.response["Error"]["Message"]
        sqs.create_queue(
            QueueName="made.fifo", Attributes={**fifo, "DeduplicationScope": "messageGroup"}
        )
        sqs.close()


def test_a_purge_forgets_what_was_sent(sqs, make_queue) -> None:
    url = make_queue(fifo=True)
    original = send(sqs, url, "x")
    sqs.purge_queue(QueueUrl=url)
    assert send(sqs, url, "x")["MessageId"] != original["MessageId"]
    assert bodies(receive(sqs, url)) == ["x"]


# --- what FIFO queues ask for ------------------------------------------------------------------


def test_a_fifo_queue_asks_for_its_identifiers(sqs, make_queue) -> None:
    url = make_queue(fifo=True)
    for options, code in (
        ({"MessageDeduplicationId": "d"}, "MissingParameter"),
        ({"MessageGroupId": "g"}, "InvalidParameterValue"),
        (
            {"MessageGroupId": "g", "MessageDeduplicationId": "d", "DelaySeconds": 1},
            "InvalidParameterValue",
        ),
        ({"MessageGroupId": "g g", "MessageDeduplicationId": "d"}, "InvalidParameterValue"),
    ):
        with pytest.raises(ClientError) as caught:
            sqs.send_message(QueueUrl=url, MessageBody="x", **options)
        assert caught.value.response["Error"]["Code"] == code, options
    assert receive(sqs, url) == []


def test_the_delay_of_a_fifo_queue_keeps_the_order(sqs, make_queue) -> None:
    url = make_queue(fifo=True, DelaySeconds="1")
    for body in ("1", "2", "3"):
        send(sqs, url, body, DelaySeconds=0)
    assert receive(sqs, url) == []
    start = time.monotonic()
    found: list[str] = []
    while len(found) < 3 and time.monotonic() - start < 10:
        messages = receive(sqs, url, WaitTimeSeconds=2)
        found += bodies(messages)
        for message in messages:
            delete(sqs, url, message)
    assert found == ["1", "2", "3"]
