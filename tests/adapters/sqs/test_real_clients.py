"""boto3 over the JSON protocol, and botocore over Query, against the codecs on a loopback port."""

from __future__ import annotations

import boto3
import botocore.session
import pytest
import requests
from botocore.config import Config
from botocore.exceptions import ClientError

from adapters.sqs.codec.shapes import (
    Call,
    ListQueuesResult,
    Message,
    MessageAttributeValue,
    QueueUrlResult,
    ReceiveMessageResult,
    SendMessageBatchResult,
    SendMessageBatchResultEntry,
    SendMessageResult,
)
from adapters.sqs.error_codes import QUEUE_DOES_NOT_EXIST, SqsError
from adapters.sqs.messages import md5
from tests.adapters.sqs.query_model import write_data_path

ATTRIBUTES = {
    "text": {"DataType": "String", "StringValue": "tést <&>"},
    "number": {"DataType": "Number.price", "StringValue": "12.50"},
    "bytes": {"DataType": "Binary", "BinaryValue": bytes(range(256))},
}
BODY = 'hello\r\n\t"wörld" <&> 😀'


@pytest.fixture
def query_client(loopback, tmp_path):
    core = botocore.session.Session()
    # Before botocore's own folder, which holds the same service.
    core.get_component("data_loader").search_paths.insert(0, str(write_data_path(tmp_path)))
    client = boto3.Session(botocore_session=core).client(
        "sqs",
        endpoint_url=loopback.url,
        region_name="eu-central-1",
        aws_access_key_id="weir",
        aws_secret_access_key="weir-secret",
        config=Config(retries={"total_max_attempts": 1}),
    )
    yield client
    client.close()


@pytest.fixture(params=["json", "query"])
def client(request):
    return request.getfixturevalue(f"{request.param}_client")


def echo(call: Call):
    """Keeps what was sent and gives it to whoever receives."""
    params = call.params
    if call.action.name == "SendMessage":
        echo.message = params
        return SendMessageResult(
            message_id="m-1",
            md5_of_message_body=md5.of_body(params.message_body.encode()),
            md5_of_message_attributes=md5.of_attributes(params.message_attributes),
        )
    return ReceiveMessageResult(
        messages=[
            Message(
                message_id="m-1",
                receipt_handle="h-1",
                body=echo.message.message_body,
                md5_of_body=md5.of_body(echo.message.message_body.encode()),
                attributes={"SentTimestamp": "1790000000000"},
                message_attributes=echo.message.message_attributes,
            )
        ]
    )


def test_a_message_survives_the_way_there_and_back(client, loopback) -> None:
    loopback.answer = echo
    url = loopback.url + "/000000000000/orders"
    sent = client.send_message(
        QueueUrl=url, MessageBody=BODY, MessageAttributes=ATTRIBUTES, DelaySeconds=0
    )
    # boto3 has checked the digest of the body itself and raised if it differed.
    assert sent["MD5OfMessageBody"] == md5.of_body(BODY.encode())
    assert sent["MD5OfMessageAttributes"]
    assert "SequenceNumber" not in sent
    received = client.receive_message(
        QueueUrl=url,
        MessageAttributeNames=["All"],
        MessageSystemAttributeNames=["All"],
        WaitTimeSeconds=1,
    )
    (message,) = received["Messages"]
    assert message["Body"] == BODY
    assert message["MessageAttributes"] == ATTRIBUTES
    assert message["Attributes"] == {"SentTimestamp": "1790000000000"}
    call = loopback.calls[-1]
    assert call.params.queue_url == url
    assert call.params.message_system_attribute_names == ["All"]
    assert call.params.wait_time_seconds == 1


def test_a_batch_with_one_failure(client, loopback) -> None:
    def answer(call: Call) -> SendMessageBatchResult:
        assert [entry.id for entry in call.params.entries] == ["a", "b"]
        return SendMessageBatchResult(
            successful=[
                SendMessageBatchResultEntry(
                    id="a", message_id="m-1", md5_of_message_body=md5.of_body(b"one")
                )
            ],
            failed=[validation.failed_entry("b", errors.missing_parameter("X"))],
        )

    from adapters.sqs import error_codes as errors
    from adapters.sqs import validation

    loopback.answer = answer
    result = client.send_message_batch(
        QueueUrl=loopback.url + "/000000000000/orders",
        Entries=[{"Id": "a", "MessageBody": "one"}, {"Id": "b", "MessageBody": "two"}],
    )
    assert [entry["Id"] for entry in result["Successful"]] == ["a"]
    assert result["Failed"] == [
        {
            "Id": "b",
            "SenderFault": True,
            "Code": "MissingParameter",
            "Message": "The request must contain the parameter X.",
        }
    ]


def test_queues_are_created_tagged_and_listed(client, loopback) -> None:
    url = loopback.url + "/000000000000/orders"
    loopback.answer = lambda call: QueueUrlResult(queue_url=url)
    created = client.create_queue(
        QueueName="orders", Attributes={"DelaySeconds": "5"}, tags={"team": "a b", "empty": ""}
    )
    assert created["QueueUrl"] == url
    params = loopback.calls[-1].params
    assert params.attributes == {"DelaySeconds": "5"}
    assert params.tags == {"team": "a b", "empty": ""}
    loopback.answer = lambda call: ListQueuesResult(queue_urls=[url], next_token="t")
    listed = client.list_queues(MaxResults=1)
    assert (listed["QueueUrls"], listed["NextToken"]) == ([url], "t")
    loopback.answer = lambda call: ListQueuesResult()
    assert "QueueUrls" not in client.list_queues()
    loopback.answer = lambda call: None
    client.tag_queue(QueueUrl=url, Tags={"k": "v"})
    assert loopback.calls[-1].params.tags == {"k": "v"}
    client.untag_queue(QueueUrl=url, TagKeys=["k", "l"])
    assert loopback.calls[-1].params.tag_keys == ["k", "l"]


def test_an_error_is_raised_with_its_code(client, loopback) -> None:
    def refuse(call: Call) -> None:
        raise SqsError(QUEUE_DOES_NOT_EXIST)

    loopback.answer = refuse
    with pytest.raises(ClientError) as caught:
        client.purge_queue(QueueUrl=loopback.url + "/000000000000/orders")
    error = caught.value.response["Error"]
    assert error["Code"] == "AWS.SimpleQueueService.NonExistentQueue"
    assert error["Message"].startswith("The specified queue does not exist")
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400


def test_the_request_keeps_what_a_signature_needs(json_client, loopback) -> None:
    json_client.list_queues()
    (request,) = loopback.requests
    assert (request.method, request.raw_path, request.query) == ("POST", b"/", b"")
    authorization = request.header(b"authorization")
    assert authorization is not None
    for name in authorization.split(b"SignedHeaders=")[1].split(b",")[0].split(b";"):
        assert request.header(name) is not None


def test_curl_like_requests_get_xml_or_json(loopback) -> None:
    loopback.answer = lambda call: SendMessageResult(message_id="m-1")
    address = loopback.url + "/000000000000/orders"
    params = {"Action": "SendMessage", "MessageBody": "a b&c"}
    response = requests.get(address, params=params, timeout=5)
    assert response.headers["content-type"] == "text/xml"
    assert "<SendMessageResult><MessageId>m-1</MessageId></SendMessageResult>" in response.text
    assert loopback.calls[-1].params.message_body == "a b&c"
    assert loopback.calls[-1].params.queue_url == "/000000000000/orders"
    response = requests.post(
        address, data=params, headers={"Accept": "application/json"}, timeout=5
    )
    assert response.json()["SendMessageResponse"]["SendMessageResult"] == {"MessageId": "m-1"}
    response = requests.get(address, timeout=5)
    assert (response.status_code, response.text) == (404, "<UnknownOperationException/>")


def test_binary_attribute_values_arrive_as_bytes(client, loopback) -> None:
    loopback.answer = lambda call: SendMessageResult()
    client.send_message(
        QueueUrl=loopback.url + "/000000000000/orders",
        MessageBody="x",
        MessageAttributes={"bytes": ATTRIBUTES["bytes"]},
    )
    assert loopback.calls[-1].params.message_attributes == {
        "bytes": MessageAttributeValue(data_type="Binary", binary_value=bytes(range(256)))
    }
