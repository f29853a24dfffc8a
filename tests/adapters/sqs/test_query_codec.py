from __future__ import annotations

import json
from urllib.parse import urlencode

import pytest

from adapters.sqs import error_codes as errors
from adapters.sqs.codec import request_protocol as wire
from adapters.sqs.codec.json_codec import JSON
from adapters.sqs.codec.query_codec import PARAMETERS_MAX, QUERY_JSON, QUERY_XML
from adapters.sqs.codec.shapes import (
    ACTIONS,
    GetQueueAttributesResult,
    ListQueuesResult,
    Message,
    MessageAttributeValue,
    ReceiveMessageResult,
)
from adapters.sqs.error_codes import SqsError
from adapters.sqs.http.request_response import REQUEST_BYTES_MAX, HttpRequest

QUEUE_PATH = b"/000000000000/orders"
FIVE = MessageAttributeValue(data_type="Number", string_value="5")


def get(params: dict[str, str] | bytes, path: bytes = b"/") -> HttpRequest:
    query = params if isinstance(params, bytes) else urlencode(params).encode()
    return HttpRequest("GET", path, query, [], b"")


def refusal(request: HttpRequest) -> SqsError:
    with pytest.raises(SqsError) as caught:
        QUERY_XML.decode(request)
    return caught.value


def test_parameters_come_from_the_query_string_and_the_body_which_wins() -> None:
    request = HttpRequest(
        "POST",
        b"/",
        b"Action=SendMessage&MessageBody=query&DelaySeconds=7",
        [],
        b"MessageBody=body",
    )
    params = QUERY_XML.decode(request).params
    assert (params.message_body, params.delay_seconds) == ("body", 7)


def test_percent_encoding_and_plus_are_undone() -> None:
    params = QUERY_XML.decode(get(b"Action=SendMessage&MessageBody=a+b%2Bc%26%C3%A9%0D")).params
    assert params.message_body == "a b+c&é\r"


def test_flattened_lists_are_in_the_order_of_their_numbers() -> None:
    params = QUERY_XML.decode(
        get(
            {
                "Action": "ReceiveMessage",
                "MessageAttributeName.10": "c",
                "MessageAttributeName.2": "b",
                "MessageAttributeName.1": "a",
            }
        )
    ).params
    assert params.message_attribute_names == ["a", "b", "c"]


@pytest.mark.parametrize("tag", ["Tag", "Tags"])
def test_maps_take_the_flattened_name_and_the_members_own(tag: str) -> None:
    params = QUERY_XML.decode(
        get({"Action": "TagQueue", f"{tag}.1.Key": "k", f"{tag}.1.Value": "v", f"{tag}.2.Key": "e"})
    ).params
    assert params.tags == {"k": "v", "e": ""}


def test_a_single_element_may_come_without_a_number() -> None:
    params = QUERY_XML.decode(
        get(
            {
                "Action": "SetQueueAttributes",
                "Attribute.Name": "VisibilityTimeout",
                "Attribute.Value": "35",
            }
        )
    ).params
    assert params.attributes == {"VisibilityTimeout": "35"}
    params = QUERY_XML.decode(get({"Action": "GetQueueAttributes", "AttributeName": "All"})).params
    assert params.attribute_names == ["All"]


def test_a_batch_of_messages_with_attributes() -> None:
    entry = "SendMessageBatchRequestEntry.1"
    params = QUERY_XML.decode(
        get(
            {
                "Action": "SendMessageBatch",
                f"{entry}.Id": "a",
                f"{entry}.MessageBody": "hello",
                f"{entry}.DelaySeconds": "5",
                f"{entry}.MessageAttribute.1.Name": "n",
                f"{entry}.MessageAttribute.1.Value.DataType": "Binary",
                f"{entry}.MessageAttribute.1.Value.BinaryValue": "AAH/",
                f"{entry}.MessageSystemAttribute.1.Name": "AWSTraceHeader",
                f"{entry}.MessageSystemAttribute.1.Value.DataType": "String",
                f"{entry}.MessageSystemAttribute.1.Value.StringValue": "Root=1",
            }
        )
    ).params
    (message,) = params.entries
    assert (message.id, message.message_body, message.delay_seconds) == ("a", "hello", 5)
    assert message.message_attributes == {
        "n": MessageAttributeValue(data_type="Binary", binary_value=b"\x00\x01\xff")
    }
    assert message.message_system_attributes["AWSTraceHeader"].string_value == "Root=1"


def test_a_batch_without_entries_is_an_empty_batch() -> None:
    assert QUERY_XML.decode(get({"Action": "DeleteMessageBatch"})).params.entries == []


def test_the_path_of_a_queue_stands_for_its_url_unless_one_is_given() -> None:
    request = get({"Action": "ReceiveMessage"}, QUEUE_PATH)
    assert QUERY_XML.decode(request).params.queue_url == "/000000000000/orders"
    request = get({"Action": "ReceiveMessage"}, QUEUE_PATH + b"/")
    assert QUERY_XML.decode(request).params.queue_url == "/000000000000/orders"
    request = get({"Action": "ReceiveMessage", "QueueUrl": "http://h/1/other"}, QUEUE_PATH)
    assert QUERY_XML.decode(request).params.queue_url == "http://h/1/other"


@pytest.mark.parametrize("action", ["CreateQueue", "ListQueues", "FooBar"])
def test_an_action_not_for_queues_is_invalid_on_a_queues_path(action: str) -> None:
    error = refusal(get({"Action": action}, QUEUE_PATH))
    assert error.kind is errors.INVALID_ACTION
    assert error.message == f"The action {action} is not valid for this endpoint."


def test_get_queue_url_is_allowed_on_a_queues_path() -> None:
    request = get({"Action": "GetQueueUrl", "QueueName": "other"}, QUEUE_PATH)
    assert QUERY_XML.decode(request).params.queue_name == "other"


@pytest.mark.parametrize("codec", [QUERY_XML, QUERY_JSON])
def test_a_queues_path_without_action_is_an_unknown_operation_in_xml(codec) -> None:
    error = refusal(get({}, QUEUE_PATH))
    assert error.kind is errors.UNKNOWN_OPERATION
    response = codec.encode_error(error, "r-1")
    assert response.status == 404
    assert response.body == b"<UnknownOperationException/>"
    assert dict(response.headers)[b"content-type"] == b"text/xml"


def test_parameters_without_action_miss_the_action() -> None:
    assert refusal(get({"QueueName": "q"})).kind is errors.MISSING_ACTION


def test_parameters_of_a_signature_are_ignored() -> None:
    request = get(
        {
            "Action": "ListQueues",
            "Version": "2012-11-05",
            "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
            "X-Amz-Credential": "weir/20261121/eu-central-1/sqs/aws4_request",
            "X-Amz-Signature": "ab",
        }
    )
    assert QUERY_XML.decode(request).params == ACTIONS["ListQueues"].request()


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (get(b"Action=ListQueues&MaxResults=ten"), errors.INVALID_PARAMETER_VALUE),
        (get(b"Action=ListQueues&MaxResults=1e3"), errors.INVALID_PARAMETER_VALUE),
        (get("Action=ListQueues&MaxResults=٣".encode()), errors.INVALID_PARAMETER_VALUE),
        (get(b"Action=ListQueues&MaxResults=" + b"9" * 5000), errors.INVALID_PARAMETER_VALUE),
        (get(b"Action=ListQueues&QueueNamePrefix=%ff"), errors.MALFORMED_QUERY_STRING),
        (get(b"&" * PARAMETERS_MAX), errors.MALFORMED_QUERY_STRING),
        (get(b"Action=SetQueueAttributes&Attribute.1.Value=5"), errors.MISSING_PARAMETER),
        (
            get(
                b"Action=SendMessage&MessageAttribute.1.Name=a"
                b"&MessageAttribute.1.Value.BinaryValue=%3F"
            ),
            errors.INVALID_PARAMETER_VALUE,
        ),
        (get(b"Action=ListQueues", b"/a/b/c"), errors.INVALID_ADDRESS),
        (get(b"Action=ListQueues", b"/\xff/q"), errors.INVALID_ADDRESS),
        (
            HttpRequest("POST", b"/", b"", [], b"a" * (REQUEST_BYTES_MAX + 1)),
            errors.REQUEST_TOO_LARGE,
        ),
    ],
)
def test_what_cannot_be_read_is_refused(request_: HttpRequest, kind) -> None:
    assert refusal(request_).kind is kind


def test_names_deeper_than_any_known_one_are_ignored() -> None:
    request = get(b"Action=ListQueues&" + b".".join([b"a"] * 5000) + b"=1")
    assert QUERY_XML.decode(request).action.name == "ListQueues"


def test_a_result_in_xml() -> None:
    result = ReceiveMessageResult(
        messages=[
            Message(
                body='<a> & "b"\r\n\ttäb]]>',
                attributes={"SenderId": "s"},
                message_attributes={
                    "n": MessageAttributeValue(data_type="Number", string_value="5")
                },
            )
        ]
    )
    response = QUERY_XML.encode_result(ACTIONS["ReceiveMessage"], result, "r-1")
    assert dict(response.headers)[b"content-type"] == b"text/xml"
    assert dict(response.headers)[b"x-amzn-requestid"] == b"r-1"
    assert response.body.decode() == (
        '<?xml version="1.0"?>'
        '<ReceiveMessageResponse xmlns="http://queue.amazonaws.com/doc/2012-11-05/">'
        "<ReceiveMessageResult><Message>"
        "<Body>&lt;a&gt; &amp; &quot;b&quot;&#xD;\n\ttäb]]&gt;</Body>"
        "<Attribute><Name>SenderId</Name><Value>s</Value></Attribute>"
        "<MessageAttribute><Name>n</Name>"
        "<Value><DataType>Number</DataType><StringValue>5</StringValue></Value>"
        "</MessageAttribute>"
        "</Message></ReceiveMessageResult>"
        "<ResponseMetadata><RequestId>r-1</RequestId></ResponseMetadata>"
        "</ReceiveMessageResponse>"
    )


def test_an_empty_result_is_an_empty_element() -> None:
    response = QUERY_XML.encode_result(ACTIONS["ReceiveMessage"], ReceiveMessageResult(), "r-1")
    assert b"<ReceiveMessageResult/>" in response.body
    response = QUERY_XML.encode_result(ACTIONS["DeleteQueue"], None, "r-1")
    assert b"Result" not in response.body


def test_an_error_in_xml_and_its_own_text_for_a_missing_queue() -> None:
    response = QUERY_XML.encode_error(SqsError(errors.QUEUE_DOES_NOT_EXIST), "r-1")
    assert response.status == 400
    assert response.body.decode() == (
        '<?xml version="1.0"?>'
        '<ErrorResponse xmlns="http://queue.amazonaws.com/doc/2012-11-05/"><Error>'
        "<Type>Sender</Type><Code>AWS.SimpleQueueService.NonExistentQueue</Code>"
        "<Message>The specified queue does not exist for this wsdl version.</Message><Detail/>"
        "</Error><RequestId>r-1</RequestId></ErrorResponse>"
    )


def test_text_that_xml_cannot_carry_is_replaced_in_errors() -> None:
    error = errors.invalid_receipt_handle("a\x00b\ufffe<\ud800>")
    body = QUERY_XML.encode_error(error, "r-1").body.decode()
    assert "a\ufffdb\ufffd&lt;\ufffd&gt;" in body


def test_accept_json_makes_a_json_rendering_with_maps_as_lists() -> None:
    request = HttpRequest(
        "GET", QUEUE_PATH, b"Action=GetQueueAttributes", [(b"accept", b"application/json")], b""
    )
    codec = wire.select(request)
    assert codec is QUERY_JSON
    call = codec.decode(request)
    result = GetQueueAttributesResult(attributes={"QueueArn": "arn"})
    response = codec.encode_result(call.action, result, "r-1")
    assert dict(response.headers)[b"content-type"] == b"application/json"
    assert json.loads(response.body) == {
        "GetQueueAttributesResponse": {
            "GetQueueAttributesResult": {"Attributes": [{"Name": "QueueArn", "Value": "arn"}]},
            "ResponseMetadata": {"RequestId": "r-1"},
        }
    }
    rendered = codec.encode_result(ACTIONS["ListQueues"], ListQueuesResult(), "r-1")
    assert json.loads(rendered.body)["ListQueuesResponse"]["ListQueuesResult"] == {}
    error = SqsError(errors.INVALID_ACTION, "The action ListQueues is not valid.")
    assert json.loads(codec.encode_error(error, "r-1").body) == {
        "Error": {
            "Code": "InvalidAction",
            "Message": "The action ListQueues is not valid.",
            "Type": "Sender",
        },
        "RequestId": "r-1",
    }


def test_the_target_header_chooses_json_and_everything_else_is_query() -> None:
    assert wire.select(HttpRequest("POST", b"/", b"", [(b"x-amz-target", b"?")], b"")) is JSON
    assert wire.select(HttpRequest("POST", b"/", b"", [(b"accept", b"*/*")], b"")) is QUERY_XML
    assert wire.select(HttpRequest("GET", b"/", b"", [], b"")) is QUERY_XML


def test_a_form_is_query_whatever_target_stands_beside_it() -> None:
    """Perl's Amazon::SQS::Simple sends a target with its forms."""
    headers = [
        (b"x-amz-target", b"AmazonSQSv20121105.ListQueues"),
        (b"content-type", b"application/x-www-form-urlencoded;charset=utf-8"),
    ]
    form = HttpRequest("POST", b"/", b"", headers, b"Action=ListQueues")
    assert wire.select(form) is QUERY_XML
    unlabelled = HttpRequest("POST", b"/", b"", headers, b"{}")
    assert wire.select(unlabelled) is JSON, "as curl sends it if it is not told otherwise"
