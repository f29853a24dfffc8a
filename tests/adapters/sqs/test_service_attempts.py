"""ReceiveRequestAttemptId, through boto3, against a whole service."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from adapters.sqs.messages import attempts
from adapters.sqs.messages.attempts import Attempt, Attempts
from tests.adapters.sqs.service import Service
from tests.adapters.sqs.test_service_fifo import bodies, delete, receive, release, send


@pytest.fixture
def url(sqs, make_queue) -> str:
    url = make_queue(fifo=True)
    for body in ("a1", "a2", "b1", "b2"):
        send(sqs, url, body, body[0])
    return url


def test_a_receive_that_is_asked_for_again_brings_the_same_messages_and_handles(sqs, url) -> None:
    first = receive(sqs, url, 3, ReceiveRequestAttemptId="one")
    assert bodies(first) == ["a1", "a2", "b1"]
    assert receive(sqs, url, 3, ReceiveRequestAttemptId="one") == first
    assert receive(sqs, url, 3, ReceiveRequestAttemptId="two") == []
    for each in first:
        delete(sqs, url, each)
    assert bodies(receive(sqs, url)) == ["b2"]


def test_it_renews_the_visibility_timeout(sqs, url) -> None:
    first = receive(sqs, url, 2, ReceiveRequestAttemptId="one", VisibilityTimeout=2)
    assert receive(sqs, url, 2, ReceiveRequestAttemptId="one", VisibilityTimeout=600) == first
    assert bodies(receive(sqs, url, VisibilityTimeout=600)) == ["b1", "b2"]
    assert receive(sqs, url, WaitTimeSeconds=3) == []


@pytest.mark.parametrize("change", [delete, release])
def test_it_cannot_be_repeated_once_one_of_its_messages_was_changed(sqs, url, change) -> None:
    first = receive(sqs, url, 2, ReceiveRequestAttemptId="one")
    change(sqs, url, first[1])
    with pytest.raises(ClientError) as caught:
        receive(sqs, url, 2, ReceiveRequestAttemptId="one")
    assert caught.value.response["Error"]["Code"] == "InvalidParameterValue"
    assert caught.value.response["Error"]["Message"] == (
        "Value one for parameter ReceiveRequestAttemptId is invalid. Reason: The "
        "receiveRequestAttemptId is not valid anymore since the receive call is not retryable."
    )


def test_after_the_visibility_timeout_and_after_five_minutes_it_is_a_new_receive(
    service: Service, sqs, url
) -> None:
    first = receive(sqs, url, 1, ReceiveRequestAttemptId="one", VisibilityTimeout=1)
    again = receive(sqs, url, 1, ReceiveRequestAttemptId="one", VisibilityTimeout=600)
    assert again == first
    service.clock.wall_ahead_ms += attempts.ATTEMPT_MS
    try:
        later = receive(sqs, url, 1, ReceiveRequestAttemptId="one")
        assert bodies(later) == ["b1"]
    finally:
        service.clock.wall_ahead_ms = 0


def test_an_empty_receive_is_not_remembered(sqs, make_queue) -> None:
    url = make_queue(fifo=True)
    assert receive(sqs, url, ReceiveRequestAttemptId="one") == []
    send(sqs, url, "x")
    assert bodies(receive(sqs, url, ReceiveRequestAttemptId="one")) == ["x"]


def test_a_standard_queue_takes_the_parameter_and_does_nothing_with_it(sqs, make_queue) -> None:
    url = make_queue()
    sqs.send_message(QueueUrl=url, MessageBody="x")
    assert bodies(receive(sqs, url, ReceiveRequestAttemptId="one")) == ["x"]
    assert receive(sqs, url, ReceiveRequestAttemptId="one") == []


def test_only_so_many_are_remembered(monkeypatch) -> None:
    monkeypatch.setattr(attempts, "ATTEMPTS_KEPT_MAX", 3)
    kept = Attempts()
    for number in range(5):
        kept.keep((1, str(number)), Attempt(1, [], [b"%d" % number]), 0)
    assert len(kept) == len(kept._by_token) == 3
    assert kept.find((1, "1"), 0) is None
    kept.changed([b"4", b"nothing"])
    assert len(kept._by_token) == 2
    assert kept.find((1, "3"), attempts.ATTEMPT_MS) is None
    assert len(kept) == 2
