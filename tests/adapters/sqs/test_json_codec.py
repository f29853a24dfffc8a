from __future__ import annotations

import json

import pytest

from adapters.sqs import error_codes as errors
from adapters.sqs.codec.json_codec import JSON
from adapters.sqs.codec.shapes import (
    ACTIONS,
    ListDeadLetterSourceQueuesResult,
    ListQueuesResult,
    Message,
    MessageAttributeValue,
    ReceiveMessageResult,
    SendMessageBatchResult,
    SendMessageResult,
)
from adapters.sqs.error_codes import SqsError
from adapters.sqs.http.request_response import REQUEST_BYTES_MAX, HttpRequest


def request(action: str, body: object, path: bytes = b"/") -> HttpRequest:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return HttpRequest("POST", path, b"", [(b"x-amz-target", b"AmazonSQS." + action.encode())], raw)


def refusal(action: str, body: object) -> SqsError:
    with pytest.raises(SqsError) as caught:
        JSON.decode(request(action, body))
    return caught.value


def test_a_call_holds_the_action_and_its_members() -> None:
    call = JSON.decode(
        request(
            "SendMessage",
            {
                "QueueUrl": "http://h/000000000000/q",
                "MessageBody": "hello",
                "DelaySeconds": 3,
                "MessageAttributes": {"a": {"DataType": "Binary", "BinaryValue": "AAH/"}},
            },
        )
    )
    assert call.action is ACTIONS["SendMessage"]
    params = call.params
    assert params.queue_url == "http://h/000000000000/q"
    assert params.message_body == "hello"
    assert params.delay_seconds == 3
    assert params.message_attributes == {
        "a": MessageAttributeValue(data_type="Binary", binary_value=b"\x00\x01\xff")
    }
    assert params.message_group_id is None


def test_unknown_members_are_ignored() -> None:
    assert JSON.decode(request("ListQueues", {"Colour": "red", "MaxResults": 5})).params == (
        ACTIONS["ListQueues"].request(max_results=5)
    )


def test_an_empty_body_has_no_members() -> None:
    assert JSON.decode(request("ListQueues", b"")).params == ACTIONS["ListQueues"].request()


def test_a_queue_path_stands_for_a_missing_queue_url() -> None:
    path = b"/000000000000/q"
    call = JSON.decode(request("ReceiveMessage", {}, path))
    assert call.params.queue_url == "/000000000000/q"
    call = JSON.decode(request("ReceiveMessage", {"QueueUrl": "http://h/1/other"}, path))
    assert call.params.queue_url == "http://h/1/other"
    assert JSON.decode(request("ListQueues", {}, path)).action.name == "ListQueues"


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (2345, "2345"), (True, "true"), (False, "false"), (1.5, "1.5")]
)
def test_numbers_and_booleans_stand_for_text(value: object, text: str) -> None:
    body = {"MessageBody": value, "MessageAttributes": {"a": {"StringValue": value}}}
    params = JSON.decode(request("SendMessage", body)).params
    assert params.message_body == text
    assert params.message_attributes["a"].string_value == text
    attributes = {"Attributes": {"DelaySeconds": value}}
    assert JSON.decode(request("CreateQueue", attributes)).params.attributes == {
        "DelaySeconds": text
    }


def test_nulls_are_as_good_as_absent() -> None:
    body = {"QueueName": "q", "Attributes": {"DelaySeconds": None, "VisibilityTimeout": "5"}}
    params = JSON.decode(request("CreateQueue", body)).params
    assert params.attributes == {"VisibilityTimeout": "5"}
    body = {"QueueUrl": None, "AttributeNames": None}
    assert JSON.decode(request("GetQueueAttributes", body)).params.attribute_names is None


def test_a_whole_number_written_as_a_decimal_is_an_integer() -> None:
    assert JSON.decode(request("SendMessage", {"DelaySeconds": 3.0})).params.delay_seconds == 3


@pytest.mark.parametrize(
    ("action", "body", "message"),
    [
        ("SendMessage", b"{", "The request body is not valid JSON."),
        ("SendMessage", b'{"MessageBody":"\xff"}', "The request body is not valid JSON."),
        ("SendMessage", b'{"MessageBody":"\\ud800"}', "The request body is not valid JSON."),
        ("SendMessage", b"[" * 100_000, "The request body is not valid JSON."),
        (
            "SendMessage",
            b'{"DelaySeconds":"x","a":' + b"[" * 100_000,
            "The request body is not valid JSON.",
        ),
        ("SendMessage", [], "Expected structure or map, or null"),
        (
            "SendMessage",
            {"MessageBody": {}},
            "Start of structure or map found where not expected.",
        ),
        ("SendMessage", {"MessageBody": []}, "Start of list found where not expected."),
        (
            "SendMessage",
            {"DelaySeconds": "invalid"},
            "STRING_VALUE can not be converted to an Integer",
        ),
        ("SendMessage", {"DelaySeconds": 1.5}, "DECIMAL_VALUE can not be converted to an Integer"),
        ("SendMessage", {"DelaySeconds": True}, "BOOLEAN_VALUE can not be converted to an Integer"),
        ("SendMessage", {"MessageAttributes": []}, "Expected structure or map, or null"),
        ("SendMessage", {"MessageAttributes": {"a": 1}}, "Expected structure or map, or null"),
        (
            "SendMessage",
            {"MessageAttributes": {"a": {"BinaryValue": "?"}}},
            "A binary value is not valid base64.",
        ),
        (
            "SendMessage",
            {"MessageAttributes": {"a": {"BinaryValue": 7}}},
            "A binary value must be a string in base64.",
        ),
        ("SendMessageBatch", {"Entries": {}}, "Expected list or null"),
        ("SendMessageBatch", {"Entries": ["x"]}, "Expected structure or map, or null"),
    ],
)
def test_what_cannot_be_read_is_a_serialization_error(
    action: str, body: object, message: str
) -> None:
    error = refusal(action, body)
    assert error.kind is errors.SERIALIZATION
    assert error.message == message


def test_a_body_beyond_the_limit_is_refused_unread() -> None:
    assert refusal("SendMessage", b" " * (REQUEST_BYTES_MAX + 1)).kind is errors.REQUEST_TOO_LARGE


def test_an_unknown_target_is_refused() -> None:
    assert refusal("Fly", {}).kind is errors.UNKNOWN_TARGET
    with pytest.raises(SqsError) as caught:
        JSON.decode(HttpRequest("POST", b"/", b"", [(b"x-amz-target", b"DynamoDB.Scan")], b"{}"))
    assert caught.value.kind is errors.UNKNOWN_TARGET


def test_a_result_has_the_headers_of_the_protocol() -> None:
    result = SendMessageResult(message_id="m", md5_of_message_body="d")
    response = JSON.encode_result(ACTIONS["SendMessage"], result, "r-1")
    assert response.status == 200
    assert dict(response.headers) == {
        b"content-type": b"application/x-amz-json-1.0",
        b"x-amzn-requestid": b"r-1",
        b"content-length": b"%d" % len(response.body),
    }
    assert json.loads(response.body) == {"MD5OfMessageBody": "d", "MessageId": "m"}


@pytest.mark.parametrize(
    ("result", "document"),
    [
        (None, {}),
        (ReceiveMessageResult(), {}),
        (ListQueuesResult(), {}),
        (SendMessageBatchResult(), {}),
        (ListDeadLetterSourceQueuesResult(queue_urls=[]), {"queueUrls": []}),
        (ReceiveMessageResult(messages=[Message(body="")]), {"Messages": [{"Body": ""}]}),
    ],
)
def test_keys_are_absent_when_empty_as_on_aws(result, document: object) -> None:
    body = JSON.encode_result(ACTIONS["ReceiveMessage"], result, "r-1").body
    assert json.loads(body) == document


def test_an_error_names_shape_code_and_fault() -> None:
    response = JSON.encode_error(SqsError(errors.QUEUE_DOES_NOT_EXIST), "r-1")
    assert response.status == 400
    assert dict(response.headers)[b"x-amzn-query-error"] == (
        b"AWS.SimpleQueueService.NonExistentQueue;Sender"
    )
    assert dict(response.headers)[b"x-amzn-requestid"] == b"r-1"
    assert json.loads(response.body) == {
        "__type": "com.amazonaws.sqs#QueueDoesNotExist",
        "message": "The specified queue does not exist.",
    }
    response = JSON.encode_error(SqsError(errors.INTERNAL_FAILURE), "r-1")
    assert response.status == 500
    assert dict(response.headers)[b"x-amzn-query-error"] == b"InternalFailure;Receiver"
