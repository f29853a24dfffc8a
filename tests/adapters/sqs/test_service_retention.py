"""MessageRetentionPeriod, through boto3, against a whole service whose clock is put forward."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from botocore.exceptions import ClientError

from kernel.api.model import DEFAULT_GROUP, DEFAULT_TENANT
from tests.adapters.sqs.service import Service

ARN = "arn:aws:sqs:eu-central-1:000000000000:"
FIGURES = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)


def name_of(url: str) -> str:
    return url.rpartition("/")[2]


def figures(sqs, url: str) -> tuple[int, ...]:
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=list(FIGURES))["Attributes"]
    return tuple(int(attributes[each]) for each in FIGURES)


def expired(service: Service, url: str) -> int:
    async def read() -> int:
        client = service.store.client
        topic = client.topic(DEFAULT_TENANT, name_of(url))
        assert topic is not None
        return (await client.statistics(topic, DEFAULT_GROUP)).expired

    return service.run(read)


def wait_until(holds: Callable[[], bool]) -> None:
    """Retention is looked after each second."""
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline, "it did not come about within 10 s"
        time.sleep(0.05)


def test_a_message_goes_when_it_is_too_old_in_flight_or_delayed_too(
    service: Service, sqs, make_queue
) -> None:
    dead = make_queue()
    policy = json.dumps({"deadLetterTargetArn": ARN + name_of(dead), "maxReceiveCount": 1})
    url = make_queue(MessageRetentionPeriod="60", RedrivePolicy=policy, VisibilityTimeout="600")
    sqs.send_message(QueueUrl=url, MessageBody="in flight")
    (held,) = sqs.receive_message(QueueUrl=url)["Messages"]
    sqs.send_message(QueueUrl=url, MessageBody="visible")
    sqs.send_message(QueueUrl=url, MessageBody="delayed", DelaySeconds=900)
    service.clock.put_forward(50_000)
    sqs.send_message(QueueUrl=url, MessageBody="young")
    assert figures(sqs, url) == (2, 1, 1)
    service.clock.put_forward(11_000)
    wait_until(lambda: figures(sqs, url) == (1, 0, 0))
    assert expired(service, url) == 3
    assert figures(sqs, dead) == (0, 0, 0)
    with pytest.raises(ClientError) as refused:
        sqs.change_message_visibility(
            QueueUrl=url, ReceiptHandle=held["ReceiptHandle"], VisibilityTimeout=0
        )
    assert refused.value.response["Error"]["Code"] in {
        "InvalidParameterValue",
        "AWS.SimpleQueueService.MessageNotInflight",
    }
    sqs.delete_message(QueueUrl=url, ReceiptHandle=held["ReceiptHandle"])  # as of one deleted
    (left,) = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=1)["Messages"]
    assert left["Body"] == "young"


def test_a_dead_letter_of_a_standard_queue_keeps_its_age_and_that_of_a_fifo_queue_does_not(
    service: Service, sqs, make_queue
) -> None:
    dead_letters: list[str] = []
    for fifo in (False, True):
        dead = make_queue(fifo=fifo, MessageRetentionPeriod="100")
        policy = json.dumps({"deadLetterTargetArn": ARN + name_of(dead), "maxReceiveCount": 1})
        url = make_queue(fifo=fifo, RedrivePolicy=policy)
        group = {"MessageGroupId": "g", "MessageDeduplicationId": "1"} if fifo else {}
        sqs.send_message(QueueUrl=url, MessageBody="x", **group)
        (held,) = sqs.receive_message(QueueUrl=url)["Messages"]
        service.clock.put_forward(25_000)
        sqs.change_message_visibility(
            QueueUrl=url, ReceiptHandle=held["ReceiptHandle"], VisibilityTimeout=0
        )
        wait_until(lambda dead=dead: figures(sqs, dead) == (1, 0, 0))
        dead_letters.append(dead)
    # The first letter is 50 s old by now, of which it has spent 25 s here; the second is new.
    service.clock.put_forward(52_000)
    wait_until(lambda: expired(service, dead_letters[0]) == 1)
    service.clock.put_forward(44_000)
    time.sleep(1.2)
    assert figures(sqs, dead_letters[1]) == (1, 0, 0)
    service.clock.put_forward(5_000)
    wait_until(lambda: expired(service, dead_letters[1]) == 1)


def test_a_shorter_period_counts_for_what_is_there(service: Service, sqs, make_queue) -> None:
    url = make_queue()
    sqs.send_message(QueueUrl=url, MessageBody="x")
    service.clock.put_forward(61_000)
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"MessageRetentionPeriod": "60"})
    wait_until(lambda: figures(sqs, url) == (0, 0, 0))
    assert expired(service, url) == 1
