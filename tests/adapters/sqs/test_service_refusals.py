"""What the kernel refuses, as clients hear it; and requests that make no sense."""

from __future__ import annotations

import contextlib
import json
import random
from collections import Counter
from http.client import HTTPConnection

import msgspec
import pytest
from botocore.exceptions import ClientError

from adapters.sqs.codec.shapes import ACTIONS, Action
from adapters.sqs.settings import SqsSettings
from auth.principal import SignInMode
from kernel.api.client import PutTopic
from kernel.api.model import GroupOptions, Overflow, TopicOptions
from tests.adapters.sqs.service import Service, service_in_thread


def put_topic(service: Service, name: str, options: TopicOptions, group: GroupOptions) -> None:
    change = PutTopic("default", name, options, {"default": group})
    service.run(lambda: service.store.client.administer(change))


def refusal(caught) -> tuple[str, int]:
    response = caught.value.response
    return response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]


def test_too_many_messages_in_flight(service: Service, sqs) -> None:
    put_topic(service, "few", TopicOptions(), GroupOptions(in_flight_max=2))
    url = sqs.get_queue_url(QueueName="few")["QueueUrl"]
    for _ in range(3):
        sqs.send_message(QueueUrl=url, MessageBody="x")
    held = [sqs.receive_message(QueueUrl=url)["Messages"][0] for _ in range(2)]
    with pytest.raises(sqs.exceptions.OverLimit) as caught:
        sqs.receive_message(QueueUrl=url)
    assert refusal(caught) == ("OverLimit", 403)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=held[0]["ReceiptHandle"])
    assert len(sqs.receive_message(QueueUrl=url)["Messages"]) == 1


def test_too_many_messages_in_flight_on_a_fifo_queue_are_no_error(service: Service, sqs) -> None:
    options = TopicOptions(deduplication_ms=300_000)
    put_topic(service, "few.fifo", options, GroupOptions(ordered=True, in_flight_max=1))
    url = sqs.get_queue_url(QueueName="few.fifo")["QueueUrl"]
    for group in "ab":
        sqs.send_message(
            QueueUrl=url, MessageBody="x", MessageGroupId=group, MessageDeduplicationId=group
        )
    assert len(sqs.receive_message(QueueUrl=url)["Messages"]) == 1
    assert "Messages" not in sqs.receive_message(QueueUrl=url)


def test_a_full_topic_throttles(service: Service, sqs) -> None:
    options = TopicOptions(messages_max=1, overflow=Overflow.REJECT)
    put_topic(service, "full", options, GroupOptions())
    url = sqs.get_queue_url(QueueName="full")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="x")
    with pytest.raises(sqs.exceptions.RequestThrottled) as caught:
        sqs.send_message(QueueUrl=url, MessageBody="x")
    assert refusal(caught) == ("RequestThrottled", 403)
    result = sqs.send_message_batch(QueueUrl=url, Entries=[{"Id": "a", "MessageBody": "x"}])
    assert [entry["Code"] for entry in result["Failed"]] == ["RequestThrottled"]


def test_a_full_disk_refuses_new_messages_and_nothing_else(service: Service, sqs, make_queue):
    url = make_queue()
    sqs.send_message(QueueUrl=url, MessageBody="x")
    service.store.client.accepting = False
    try:
        with pytest.raises(ClientError) as caught:
            sqs.send_message(QueueUrl=url, MessageBody="x")
        assert refusal(caught) == ("ServiceUnavailable", 503)
        (message,) = sqs.receive_message(QueueUrl=url)["Messages"]
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    finally:
        service.store.client.accepting = True


# --- nonsense ----------------------------------------------------------------------------------

SEED = 20261121
REQUESTS = 3000
VALUES: list[object] = [
    None,
    True,
    -1,
    1,
    2**70,
    1.5,
    "",
    "x" * 300,
    "\x00",
    "\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "replace"),
    [],
    {},
    [None],
    {"": ""},
    {"StringValue": "a", "DataType": "String"},
    "AWS",
    "a",
    ["All"],
    {"VisibilityTimeout": "5"},
    "http://h/000000000000/q",
]


def test_no_request_however_odd_is_an_internal_failure(tmp_path) -> None:
    generator = random.Random(SEED)
    with service_in_thread(tmp_path, SqsSettings(sign_in=SignInMode.OFF)) as service:
        client = service.client()
        url = client.create_queue(QueueName="q")["QueueUrl"]
        fifo = client.create_queue(QueueName="q.fifo", Attributes={"FifoQueue": "true"})
        client.close()
        urls = [url, fifo["QueueUrl"], f"{url}-missing"]
        statuses: Counter[int] = Counter()
        with contextlib.closing(HTTPConnection("127.0.0.1", service.port)) as connection:
            for _ in range(REQUESTS):
                action = generator.choice(list(ACTIONS.values()))
                body = _odd_body(generator, action, urls)
                headers = {"X-Amz-Target": f"AmazonSQS.{action.name}"}
                connection.request("POST", "/", body, headers)
                response = connection.getresponse()
                answer = response.read()
                assert response.status < 500, (action.name, body, answer)
                statuses[response.status] += 1
        assert statuses[200] > REQUESTS / 50
        assert statuses[400] > REQUESTS / 4


def _odd_body(generator: random.Random, action: Action, urls: list[str]) -> bytes:
    """A request with members of any kind, or with bytes changed."""
    names = [field.encode_name for field in msgspec.structs.fields(action.request)]
    document = {name: generator.choice(VALUES) for name in names if generator.random() < 0.3}
    for known in ("QueueUrl", "QueueName"):
        if known in names:
            document[known] = generator.choice([*urls, urls[0].rpartition("/")[2]])
    # A poll for seconds tells nothing new.
    document.pop("WaitTimeSeconds", None)
    body = bytearray(json.dumps(document).encode())
    if generator.random() < 0.3:
        for _ in range(generator.randrange(1, 4)):
            body[generator.randrange(len(body))] = generator.randrange(256)
    return bytes(body)
