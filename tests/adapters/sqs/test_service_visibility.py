"""Visibility timeouts: through boto3, against a whole service."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import ClientError

from adapters.sqs.messages import receipt_handle
from tests.adapters.sqs.service import Service
from tests.adapters.sqs.test_service_messages import code_of, figures, receive


def test_a_message_becomes_visible_again_after_the_timeout(sqs, make_queue) -> None:
    url = make_queue(VisibilityTimeout="1")
    sqs.send_message(QueueUrl=url, MessageBody="x")
    (first,) = receive(sqs, url)
    assert receive(sqs, url) == []
    (again,) = receive(sqs, url, WaitTimeSeconds=5)
    assert again["MessageId"] == first["MessageId"]
    assert again["ReceiptHandle"] != first["ReceiptHandle"]
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"
    key = "ApproximateFirstReceiveTimestamp"
    assert again["Attributes"][key] == first["Attributes"][key]


@pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
def test_a_visibility_timeout_of_zero_leaves_the_message_visible(
    sqs, make_queue, fifo: bool
) -> None:
    """At once: no receive in a row misses it."""
    url = make_queue(fifo=fifo)
    group = {"MessageGroupId": "g", "MessageDeduplicationId": "x"} if fifo else {}
    sqs.send_message(QueueUrl=url, MessageBody="x", **group)
    got = [each for _ in range(6) for each in receive(sqs, url, VisibilityTimeout=0)]
    assert [each["Attributes"]["ApproximateReceiveCount"] for each in got] == list("123456")
    assert len({each["ReceiptHandle"] for each in got}) == 6
    assert figures(sqs, url) == (1, 0, 0)
    assert len(receive(sqs, url, VisibilityTimeout=60)) == 1
    assert receive(sqs, url) == []


def test_a_handle_whose_visibility_timeout_was_zero_deletes_the_message(sqs, make_queue) -> None:
    url = make_queue()
    sqs.send_message(QueueUrl=url, MessageBody="x")
    (message,) = receive(sqs, url, VisibilityTimeout=0)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert figures(sqs, url) == (0, 0, 0)


def test_one_message_with_a_visibility_timeout_of_zero_ends_every_long_poll(
    service: Service, sqs, make_queue
) -> None:
    url = make_queue()
    clients = [service.client() for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        polls = [
            pool.submit(receive, client, url, VisibilityTimeout=0, WaitTimeSeconds=20)
            for client in clients
        ]
        sqs.send_message(QueueUrl=url, MessageBody="x")
        assert [poll.result(10)[0]["Body"] for poll in polls] == ["x"] * 3
    for client in clients:
        client.close()


def test_visibility_of_a_message_whose_time_is_over_can_be_changed_while_nobody_has_it(
    sqs, make_queue
) -> None:
    """As on AWS: it succeeds and changes nothing."""
    url = make_queue()
    sqs.send_message(QueueUrl=url, MessageBody="x")
    (first,) = receive(sqs, url, VisibilityTimeout=0)
    for timeout_s in (60, 0):
        sqs.change_message_visibility(
            QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=timeout_s
        )
    entry = {"Id": "1", "ReceiptHandle": first["ReceiptHandle"], "VisibilityTimeout": 60}
    answer = sqs.change_message_visibility_batch(QueueUrl=url, Entries=[entry])
    assert [each["Id"] for each in answer["Successful"]] == ["1"]
    assert len(receive(sqs, url, VisibilityTimeout=60)) == 1
    with pytest.raises(ClientError) as caught:
        sqs.change_message_visibility(
            QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=60
        )
    assert code_of(caught) == "InvalidParameterValue"


def test_visibility_can_be_ended_and_extended(sqs, make_queue) -> None:
    url = make_queue(VisibilityTimeout="1")
    for body in ("ended", "extended"):
        sqs.send_message(QueueUrl=url, MessageBody=body)
    ended, extended = (message["ReceiptHandle"] for message in receive(sqs, url))
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=extended, VisibilityTimeout=60)
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=ended, VisibilityTimeout=0)
    assert [message["Body"] for message in receive(sqs, url, VisibilityTimeout=60)] == ["ended"]
    assert receive(sqs, url, WaitTimeSeconds=2) == []
    sqs.delete_message(QueueUrl=url, ReceiptHandle=extended)


def test_visibility_ends_twelve_hours_after_the_receive(service: Service, sqs, make_queue) -> None:
    url = make_queue()
    sqs.send_message(QueueUrl=url, MessageBody="x")
    handle = receive(sqs, url)[0]["ReceiptHandle"]
    token, topic, received_s = receipt_handle.decode(handle)
    older = receipt_handle.encode(token, topic, received_s - 3600)
    with pytest.raises(ClientError) as caught:
        sqs.change_message_visibility(
            QueueUrl=url, ReceiptHandle=older, VisibilityTimeout=12 * 3600 - 3590
        )
    assert "beyond the limit [43200 seconds]" in str(caught.value)
    sqs.change_message_visibility(
        QueueUrl=url, ReceiptHandle=older, VisibilityTimeout=12 * 3600 - 3660
    )


def test_visibility_of_a_message_that_is_gone_cannot_change(sqs, make_queue) -> None:
    url = make_queue()
    sqs.send_message(QueueUrl=url, MessageBody="x")
    handle = receive(sqs, url)[0]["ReceiptHandle"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=handle)
    for timeout_s in (0, 10):
        with pytest.raises(ClientError) as caught:
            sqs.change_message_visibility(
                QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=timeout_s
            )
        assert code_of(caught) == "InvalidParameterValue"
        assert "not available for visibility timeout change" in str(caught.value)
