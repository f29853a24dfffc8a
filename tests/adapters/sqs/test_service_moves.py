"""Message move tasks, through boto3, against a whole service."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable

import pytest
from botocore.exceptions import ClientError

ARN = "arn:aws:sqs:eu-central-1:000000000000:"


def arn(url: str) -> str:
    return ARN + url.rpartition("/")[2]


def code_of(caught) -> str:
    return caught.value.response["Error"]["Code"]


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 15
    while not holds():
        assert time.monotonic() < deadline, "it did not come about within 15 s"
        time.sleep(0.05)


def ready(sqs, url: str) -> int:
    name = "ApproximateNumberOfMessages"
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[name])
    return int(found["Attributes"][name])


def latest(sqs, url: str):
    (task,) = sqs.list_message_move_tasks(SourceArn=arn(url))["Results"]
    return task


def wait_for_end(sqs, url: str):
    wait_until(lambda: latest(sqs, url)["Status"] != "RUNNING")
    return latest(sqs, url)


@pytest.fixture
def make_dead(sqs, make_queue):
    """A queue with a dead-letter queue, and letters in it: (queue, dead-letter queue)."""

    def make(count: int = 3, *, fifo: bool = False, dead: str | None = None) -> tuple[str, str]:
        dead = dead or make_queue(fifo=fifo)
        policy = json.dumps({"deadLetterTargetArn": arn(dead), "maxReceiveCount": 1})
        url = make_queue(fifo=fifo, RedrivePolicy=policy)
        before = ready(sqs, dead)
        for number in range(count):
            group = {"MessageGroupId": "g", "MessageDeduplicationId": str(number)} if fifo else {}
            sqs.send_message(QueueUrl=url, MessageBody=f"letter {number}", **group)
            (held,) = sqs.receive_message(QueueUrl=url)["Messages"]
            sqs.change_message_visibility(
                QueueUrl=url, ReceiptHandle=held["ReceiptHandle"], VisibilityTimeout=0
            )
            wait_until(lambda number=number: ready(sqs, dead) == before + number + 1)
        return url, dead

    return make


def receive_all(sqs, url: str, count: int):
    found = []
    while len(found) < count:
        found += sqs.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=10,
            WaitTimeSeconds=5,
            MessageSystemAttributeNames=["All"],
        ).get("Messages", [])
    return found


@pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
def test_dead_letters_go_back_to_where_they_came_from(sqs, make_dead, fifo: bool) -> None:
    url, dead = make_dead(fifo=fifo)
    other, _ = make_dead(2, fifo=fifo, dead=dead)
    (first,) = sqs.receive_message(QueueUrl=dead, MessageSystemAttributeNames=["All"])["Messages"]
    sqs.change_message_visibility(
        QueueUrl=dead, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0
    )
    started = sqs.start_message_move_task(SourceArn=arn(dead))
    assert started["TaskHandle"]
    task = wait_for_end(sqs, dead)
    assert task["Status"] == "COMPLETED"
    assert task["ApproximateNumberOfMessagesMoved"] == 5
    assert task["ApproximateNumberOfMessagesToMove"] == 5
    assert task["SourceArn"] == arn(dead)
    assert abs(task["StartedTimestamp"] - time.time() * 1000) < 60_000
    assert not {"TaskHandle", "DestinationArn", "FailureReason"} & set(task)
    wait_until(lambda: ready(sqs, url) == 3 and ready(sqs, other) == 2)
    found = receive_all(sqs, url, 3)
    assert [each["Body"] for each in found] == ["letter 0", "letter 1", "letter 2"]
    assert found[0]["MessageId"] != first["MessageId"]
    system = found[0]["Attributes"]
    assert system["ApproximateReceiveCount"] == "1"
    assert "DeadLetterQueueSourceArn" not in system
    assert int(system["SentTimestamp"]) > int(first["Attributes"]["SentTimestamp"])
    assert ready(sqs, dead) == 0


def test_to_another_queue_at_a_rate(sqs, make_dead, make_queue) -> None:
    _, dead = make_dead(4)
    target = make_queue()
    sqs.start_message_move_task(
        SourceArn=arn(dead), DestinationArn=arn(target), MaxNumberOfMessagesPerSecond=2
    )
    task = latest(sqs, dead)
    assert (task["Status"], task["DestinationArn"]) == ("RUNNING", arn(target))
    assert task["MaxNumberOfMessagesPerSecond"] == 2
    handle = json.loads(base64.b64decode(task["TaskHandle"]))
    assert set(handle) == {"taskId", "sourceArn"}
    assert handle["sourceArn"] == arn(dead)
    with pytest.raises(ClientError) as caught:
        sqs.start_message_move_task(SourceArn=arn(dead))
    assert code_of(caught) == "InvalidParameterValue"
    assert "Only one active task is allowed" in str(caught.value)
    wait_until(lambda: ready(sqs, target) == 4)
    assert wait_for_end(sqs, dead)["ApproximateNumberOfMessagesMoved"] == 4


def test_tasks_are_listed_the_newest_first(sqs, make_dead, make_queue) -> None:
    _, dead = make_dead(1)
    assert (
        "Results" not in sqs.list_message_move_tasks(SourceArn=arn(dead))
        or not (sqs.list_message_move_tasks(SourceArn=arn(dead))["Results"])
    )
    targets = [make_queue(), make_queue()]
    for target in targets:
        sqs.start_message_move_task(SourceArn=arn(dead), DestinationArn=arn(target))
        wait_for_end(sqs, dead)
    listed = sqs.list_message_move_tasks(SourceArn=arn(dead), MaxResults=10)["Results"]
    assert [each["DestinationArn"] for each in listed] == [arn(each) for each in reversed(targets)]
    assert [each["ApproximateNumberOfMessagesMoved"] for each in listed] == [0, 1]


def test_a_task_is_cancelled_by_its_handle(sqs, make_dead) -> None:
    url, dead = make_dead(5)
    handle = sqs.start_message_move_task(SourceArn=arn(dead), MaxNumberOfMessagesPerSecond=1)[
        "TaskHandle"
    ]
    wait_until(lambda: ready(sqs, url) >= 1)
    answer = sqs.cancel_message_move_task(TaskHandle=handle)
    moved = answer["ApproximateNumberOfMessagesMoved"]
    assert 1 <= moved < 5
    assert latest(sqs, dead)["Status"] == "CANCELLED"
    time.sleep(1.2)
    assert (ready(sqs, url), ready(sqs, dead)) == (moved, 5 - moved)
    with pytest.raises(ClientError) as caught:
        sqs.cancel_message_move_task(TaskHandle=handle)
    assert code_of(caught) == "InvalidParameterValue"


def test_a_task_that_cannot_tell_where_a_message_came_from_fails_and_says_so(
    sqs, make_dead
) -> None:
    _, dead = make_dead(1)
    sqs.send_message(QueueUrl=dead, MessageBody="sent here")
    sqs.start_message_move_task(SourceArn=arn(dead))
    task = wait_for_end(sqs, dead)
    assert (task["Status"], task["FailureReason"]) == ("FAILED", "CouldNotDetermineMessageSource")
    assert (task["ApproximateNumberOfMessagesMoved"], ready(sqs, dead)) == (1, 1)


def test_what_a_task_is_refused_for(sqs, reader, make_dead, make_queue) -> None:
    _, dead = make_dead(1)
    _, dead_fifo = make_dead(1, fifo=True)
    none = ARN + "no-such-queue"
    start, cancel = sqs.start_message_move_task, sqs.cancel_message_move_task
    handle = base64.b64encode(json.dumps({"taskId": "x", "sourceArn": arn(dead)}).encode()).decode()
    other = base64.b64encode(b'{"taskId":1}').decode()
    for call, arguments, code in (
        (start, {"SourceArn": none}, "ResourceNotFoundException"),
        (start, {"SourceArn": "arn:aws:sns:x:000000000000:y"}, "InvalidParameterValue"),
        (start, {"SourceArn": "queue"}, "InvalidParameterValue"),
        (start, {"SourceArn": arn(make_queue())}, "InvalidParameterValue"),
        (start, {"SourceArn": arn(dead), "DestinationArn": none}, "ResourceNotFoundException"),
        (start, {"SourceArn": arn(dead), "DestinationArn": arn(dead)}, "InvalidParameterValue"),
        (
            start,
            {"SourceArn": arn(dead_fifo), "DestinationArn": arn(make_queue())},
            "InvalidParameterValue",
        ),
        (
            start,
            {"SourceArn": arn(dead), "MaxNumberOfMessagesPerSecond": 501},
            "InvalidParameterValue",
        ),
        (
            start,
            {"SourceArn": arn(dead), "MaxNumberOfMessagesPerSecond": 0},
            "InvalidParameterValue",
        ),
        (reader.start_message_move_task, {"SourceArn": arn(dead)}, "AccessDenied"),
        (sqs.list_message_move_tasks, {"SourceArn": none}, "ResourceNotFoundException"),
        (
            sqs.list_message_move_tasks,
            {"SourceArn": arn(dead), "MaxResults": 11},
            "InvalidParameterValue",
        ),
        (cancel, {"TaskHandle": "handle"}, "InvalidParameterValue"),
        (cancel, {"TaskHandle": other}, "InvalidParameterValue"),
        (cancel, {"TaskHandle": "A" * 2000}, "InvalidParameterValue"),
        (cancel, {"TaskHandle": handle}, "ResourceNotFoundException"),
    ):
        with pytest.raises(ClientError) as caught:
            call(**arguments)
        assert code_of(caught) == code, arguments
