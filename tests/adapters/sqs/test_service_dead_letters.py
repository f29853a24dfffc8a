"""Dead-letter queues, through boto3, against a whole service."""

from __future__ import annotations

import json
import time

import pytest
from botocore.exceptions import ClientError

ARN = "arn:aws:sqs:eu-central-1:000000000000:"


def redrive_policy(target: str, count: int | str) -> str:
    return json.dumps({"deadLetterTargetArn": ARN + target, "maxReceiveCount": count})


def name_of(url: str) -> str:
    return url.rpartition("/")[2]


def receive(sqs, url: str, **options):
    result = sqs.receive_message(
        QueueUrl=url,
        MessageAttributeNames=["All"],
        MessageSystemAttributeNames=["All"],
        MaxNumberOfMessages=10,
        **options,
    )
    return result.get("Messages", [])


def test_a_message_received_too_often_moves_to_the_dead_letter_queue(sqs, make_queue) -> None:
    dead = make_queue()
    url = make_queue(VisibilityTimeout="1", RedrivePolicy=redrive_policy(name_of(dead), 2))
    attributes = {"kept": {"DataType": "String", "StringValue": "yes"}}
    sent = sqs.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=attributes)
    for attempt in ("1", "2"):
        (message,) = receive(sqs, url, WaitTimeSeconds=5)
        assert message["Attributes"]["ApproximateReceiveCount"] == attempt
    (letter,) = receive(sqs, dead, WaitTimeSeconds=10)
    assert letter["MessageId"] == sent["MessageId"]
    assert letter["Body"] == "x"
    assert letter["MessageAttributes"] == attributes
    system = letter["Attributes"]
    assert system["DeadLetterQueueSourceArn"] == ARN + name_of(url)
    assert system["SentTimestamp"] == message["Attributes"]["SentTimestamp"]
    assert receive(sqs, url) == []
    sqs.delete_message(QueueUrl=dead, ReceiptHandle=letter["ReceiptHandle"])


@pytest.mark.parametrize("timeout_s", [0, 60], ids=["at once", "given back"])
def test_receive_counts_go_on_in_the_dead_letter_queue(sqs, make_queue, timeout_s: int) -> None:
    dead = make_queue()
    dying = make_queue(RedrivePolicy=redrive_policy(name_of(dead), 3))
    url = make_queue(RedrivePolicy=redrive_policy(name_of(dying), 2))
    sqs.send_message(QueueUrl=url, MessageBody="x")
    counts = []
    for each in (url, url, dying, dying, dying, dead, dead):
        (message,) = receive(sqs, each, WaitTimeSeconds=5, VisibilityTimeout=timeout_s)
        counts.append(message["Attributes"]["ApproximateReceiveCount"])
        if timeout_s:
            sqs.change_message_visibility(
                QueueUrl=each, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
            )
    assert counts == list("1234567")


def test_giving_a_message_back_counts_as_a_receive(sqs, make_queue) -> None:
    dead = make_queue()
    url = make_queue(RedrivePolicy=redrive_policy(name_of(dead), "1"))
    sqs.send_message(QueueUrl=url, MessageBody="x")
    (message,) = receive(sqs, url)
    sqs.change_message_visibility(
        QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
    )
    assert len(receive(sqs, dead, WaitTimeSeconds=10)) == 1
    assert receive(sqs, url) == []


def test_a_group_goes_on_when_its_head_is_dead(sqs, make_queue) -> None:
    dead = make_queue(fifo=True)
    url = make_queue(fifo=True, RedrivePolicy=redrive_policy(name_of(dead), 1))
    for body in ("1", "2"):
        sqs.send_message(
            QueueUrl=url, MessageBody=body, MessageGroupId="g", MessageDeduplicationId=body
        )
    (first,) = sqs.receive_message(QueueUrl=url)["Messages"]
    sqs.change_message_visibility(
        QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0
    )
    assert [message["Body"] for message in receive(sqs, url, WaitTimeSeconds=10)] == ["2"]
    (letter,) = receive(sqs, dead, WaitTimeSeconds=10)
    assert letter["Body"] == "1"
    assert letter["Attributes"]["MessageGroupId"] == "g"


def test_the_policy_is_shown_as_it_was_written_and_can_be_taken_back(sqs, make_queue) -> None:
    dead = make_queue()
    text = redrive_policy(name_of(dead), "3")
    url = make_queue()
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": text})

    def shown():
        asked = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"])
        return asked.get("Attributes")

    assert shown() == {"RedrivePolicy": text}
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": ""})
    assert shown() is None


def test_the_sources_of_a_dead_letter_queue_are_listed_in_pages(sqs, make_queue) -> None:
    dead = make_queue()
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == []
    policy = redrive_policy(name_of(dead), 3)
    urls = sorted(make_queue(RedrivePolicy=policy) for _ in range(3))
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == urls
    first = sqs.list_dead_letter_source_queues(QueueUrl=dead, MaxResults=2)
    rest = sqs.list_dead_letter_source_queues(
        QueueUrl=dead, MaxResults=2, NextToken=first["NextToken"]
    )
    assert first["queueUrls"] + rest["queueUrls"] == urls


def test_a_dead_letter_queue_must_be_there_and_of_the_same_kind(sqs, make_queue) -> None:
    fifo = make_queue(fifo=True)
    for target in ("nowhere", name_of(fifo)):
        with pytest.raises(ClientError) as caught:
            make_queue(RedrivePolicy=redrive_policy(target, 3))
        assert caught.value.response["Error"]["Code"] == "InvalidParameterValue"


def test_queues_whose_dead_letters_would_go_round_are_refused(sqs, make_queue) -> None:
    third = make_queue()
    second = make_queue(RedrivePolicy=redrive_policy(name_of(third), 3))
    first = make_queue(RedrivePolicy=redrive_policy(name_of(second), 3))
    for url, target in ((first, first), (second, first), (third, first)):
        changes = {"RedrivePolicy": redrive_policy(name_of(target), 3)}
        with pytest.raises(ClientError, match="come back to this queue") as caught:
            sqs.set_queue_attributes(QueueUrl=url, Attributes=changes)
        assert caught.value.response["Error"]["Code"] == "InvalidParameterValue"
    fourth = make_queue()
    changes = {"RedrivePolicy": redrive_policy(name_of(fourth), 3)}
    sqs.set_queue_attributes(QueueUrl=third, Attributes=changes)


def test_a_dead_letter_queue_says_who_may_send_to_it(sqs, make_queue) -> None:
    allow = json.dumps(
        {"redrivePermission": "byQueue", "sourceQueueArns": [ARN.replace("central", "x") + "ok"]}
    )
    dead = name_of(make_queue(RedriveAllowPolicy=allow))
    make_queue(name="ok", RedrivePolicy=redrive_policy(name_of(dead), 3))
    with pytest.raises(ClientError) as caught:
        make_queue(name="not-ok", RedrivePolicy=redrive_policy(name_of(dead), 3))
    assert caught.value.response["Error"]["Code"] == "InvalidParameterValue"


def test_dead_letters_of_many_messages_lose_none(sqs, make_queue) -> None:
    dead = make_queue()
    url = make_queue(VisibilityTimeout="1", RedrivePolicy=redrive_policy(name_of(dead), 1))
    sent = set()
    for _ in range(3):
        entries = [{"Id": str(n), "MessageBody": "x"} for n in range(10)]
        result = sqs.send_message_batch(QueueUrl=url, Entries=entries)
        sent |= {entry["MessageId"] for entry in result["Successful"]}
    for _ in range(3):
        receive(sqs, url)
    found: set[str] = set()
    end = time.monotonic() + 15
    while found != sent and time.monotonic() < end:
        found |= {message["MessageId"] for message in receive(sqs, dead, WaitTimeSeconds=1)}
    assert found == sent
