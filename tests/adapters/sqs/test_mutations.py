"""Mutated requests: whatever arrives, only SqsError leaves the decoders and checks."""

from __future__ import annotations

import random
from urllib.parse import urlencode

import msgspec
import pytest

from adapters.sqs import names, validation
from adapters.sqs.codec import request_protocol as wire
from adapters.sqs.codec.shapes import (
    Call,
    CreateQueueRequest,
    OutgoingMessage,
    ReceiveMessageRequest,
    SendMessageBatchRequest,
    SetQueueAttributesRequest,
)
from adapters.sqs.error_codes import SqsError
from adapters.sqs.http.request_response import HttpRequest
from adapters.sqs.messages import attribute_map, selection
from adapters.sqs.validation import SendRules

ROUNDS = 50_000
"""Mutations of each protocol; some seconds."""

JSON_SEEDS = [
    (
        "SendMessage",
        (
            b'{"QueueUrl":"http://h/000000000000/q","MessageBody":"caf\\u00e9 \xf0\x9f\x98\x80",'
            b'"DelaySeconds":5,"MessageAttributes":{"a":{"DataType":"Number","StringValue":"1.5"},'
            b'"weir.more":{"DataType":"String","StringValue":"{\\"a\\":1}"},'
            b'"b":{"DataType":"Binary","BinaryValue":"AAH/"}},"MessageGroupId":"g"}'
        ),
    ),
    (
        "SendMessageBatch",
        (
            b'{"QueueUrl":"http://h/000000000000/q","Entries":[{"Id":"1","MessageBody":"x"},'
            b'{"Id":"2","MessageBody":"y","MessageSystemAttributes":{"AWSTraceHeader":'
            b'{"DataType":"String","StringValue":"Root=1"}}}]}'
        ),
    ),
    (
        "ReceiveMessage",
        (
            b'{"QueueUrl":"http://h/000000000000/q","MaxNumberOfMessages":10,"WaitTimeSeconds":20,'
            b'"AttributeNames":["All"],"MessageAttributeNames":["a.*"]}'
        ),
    ),
    (
        "CreateQueue",
        (
            b'{"QueueName":"q.fifo","Attributes":{"FifoQueue":"true","DelaySeconds":"5",'
            b'"RedrivePolicy":"{\\"deadLetterTargetArn\\":\\"arn:aws:sqs:r:1:d.fifo\\",'
            b'\\"maxReceiveCount\\":3}"},"tags":{"k":"v"}}'
        ),
    ),
]
QUERY_SEEDS = [
    urlencode(
        {
            "Action": "SendMessage",
            "MessageBody": "café & co",
            "DelaySeconds": "5",
            "MessageAttribute.1.Name": "a",
            "MessageAttribute.1.Value.DataType": "Binary",
            "MessageAttribute.1.Value.BinaryValue": "AAH/",
        }
    ).encode(),
    urlencode(
        {
            "Action": "SendMessageBatch",
            "SendMessageBatchRequestEntry.1.Id": "a",
            "SendMessageBatchRequestEntry.1.MessageBody": "x",
            "SendMessageBatchRequestEntry.2.Id": "b",
            "SendMessageBatchRequestEntry.2.MessageBody": "y",
            "SendMessageBatchRequestEntry.2.MessageAttribute.1.Name": "n",
            "SendMessageBatchRequestEntry.2.MessageAttribute.1.Value.DataType": "Number",
            "SendMessageBatchRequestEntry.2.MessageAttribute.1.Value.StringValue": "1e5",
        }
    ).encode(),
    urlencode(
        {"Action": "SetQueueAttributes", "Attribute.1.Name": "DelaySeconds", "Attribute.1.Value": 5}
    ).encode(),
    b"Action=ReceiveMessage&MaxNumberOfMessages=10&AttributeName.1=All&QueueUrl=%2F1%2Fq",
]
TOKENS = [
    b'"', b"{", b"}", b"[", b"]", b",", b":", b"null", b"true", b"-1", b"1e400", b"\\u0000",
    b"\\ud800", b"\xff", b"\x00", b"&", b"=", b"%", b"%00", b"%ff", b".1", b".", b"+", b"99999999",
    b"Name", b"Value", b"Action=CreateQueue&",
]  # fmt: skip


def mutate(seed: bytes, random: random.Random) -> bytes:
    data = bytearray(seed)
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(data) + 1)
        what = random.randrange(5)
        if what == 0 and data:
            data[at % len(data)] = random.randrange(256)
        elif what == 1:
            del data[at : at + random.randint(1, 12)]
        elif what == 2:
            data[at:at] = random.choice(TOKENS)
        elif what == 3:
            data[at : at + random.randint(1, 8)] = random.choice(TOKENS)
        else:
            other = random.randrange(len(data) + 1)
            data[at:at] = data[other : other + 20]
    return bytes(data)


def check(call: Call) -> None:
    """Every check that the adapter makes of a decoded call."""
    validation.check_required(call)
    params = call.params
    if getattr(params, "queue_url", None) is not None:
        names.parse_queue_url(params.queue_url)
    if isinstance(params, SendMessageBatchRequest):
        validation.check_send_batch(params, SendRules())
    elif isinstance(params, OutgoingMessage):
        validation.check_message(params, SendRules())
        attribute_map.from_sqs(params.message_attributes or {})
    elif isinstance(params, ReceiveMessageRequest):
        validation.check_receive(params)
        selection.system_attribute_names(params)
    elif isinstance(params, CreateQueueRequest):
        validation.check_create_queue(params)
    elif isinstance(params, SetQueueAttributesRequest):
        validation.queue_attributes.check_for_set(params.attributes, {}, fifo=False)


def handle(request: HttpRequest) -> bool:
    """True if the request was right. Every refusal must have an answer in the protocol."""
    protocol = wire.select(request)
    try:
        call = protocol.decode(request)
        check(call)
    except SqsError as error:
        protocol.encode_error(error, "r")
        return False
    msgspec.json.encode(call.params)
    return True


@pytest.mark.parametrize("seed", range(2))
def test_mutated_json_requests_are_answered_or_refused(seed: int) -> None:
    source = random.Random(seed)
    right = 0
    for _ in range(ROUNDS // 2):
        action, body = source.choice(JSON_SEEDS)
        target = b"AmazonSQS." + action.encode()
        if source.random() < 0.02:
            target = mutate(target, source)
        request = HttpRequest("POST", b"/", b"", [(b"x-amz-target", target)], mutate(body, source))
        right += handle(request)
    assert 0 < right < ROUNDS // 2


@pytest.mark.parametrize("seed", range(2))
def test_mutated_query_requests_are_answered_or_refused(seed: int) -> None:
    source = random.Random(seed)
    right = 0
    for _ in range(ROUNDS // 2):
        parameters = mutate(source.choice(QUERY_SEEDS), source)
        path = b"/000000000000/q"
        if source.random() < 0.05:
            path = mutate(path, source)
        accept = [(b"accept", b"application/json")] if source.random() < 0.5 else []
        query, body = (parameters, b"") if source.random() < 0.5 else (b"", parameters)
        right += handle(HttpRequest("GET" if query else "POST", path, query, accept, body))
    assert 0 < right < ROUNDS // 2


def test_seeds_are_right_requests() -> None:
    for action, body in JSON_SEEDS:
        target = b"AmazonSQS." + action.encode()
        assert handle(HttpRequest("POST", b"/", b"", [(b"x-amz-target", target)], body))
    for query in QUERY_SEEDS:
        assert handle(HttpRequest("GET", b"/000000000000/q", query, [], b""))
