from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.sqs import error_codes as errors
from adapters.sqs import validation
from adapters.sqs.codec.shapes import (
    ACTIONS,
    Call,
    ChangeMessageVisibilityBatchRequest,
    ChangeMessageVisibilityBatchRequestEntry,
    ChangeMessageVisibilityRequest,
    CreateQueueRequest,
    DeleteMessageBatchRequest,
    MessageAttributeValue,
    ReceiveMessageRequest,
    SendMessageBatchRequest,
    SendMessageBatchRequestEntry,
    SendMessageRequest,
)
from adapters.sqs.error_codes import ErrorKind, SqsError
from adapters.sqs.messages.message_attributes import (
    check_attributes,
    check_system_attributes,
    size_of_attributes,
)
from adapters.sqs.validation import SendRules

STANDARD = SendRules()
FIFO = SendRules(fifo=True)
FIFO_BY_CONTENT = SendRules(fifo=True, content_based_deduplication=True)
WRONG_TYPE = "The request include parameter that is not valid for this queue type."
DEDUPLICATION = (
    "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId "
    "provided explicitly"
)


def refused(kind: ErrorKind, message: str):
    class Refused:
        def __enter__(self) -> None:
            self.context = pytest.raises(SqsError)
            self.caught = self.context.__enter__()

        def __exit__(self, *problem) -> bool:
            suppress = self.context.__exit__(*problem)
            assert (self.caught.value.kind, self.caught.value.message) == (kind, message)
            return suppress

    return Refused()


def value(text: str | None = None, data_type: str | None = "String", **more):
    return MessageAttributeValue(data_type=data_type, string_value=text, **more)


# --- required members --------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(ACTIONS))
def test_an_action_without_its_members_misses_the_first(name: str) -> None:
    action = ACTIONS[name]
    call = Call(action, action.request())
    if name == "ListQueues":
        validation.check_required(call)
        return
    with pytest.raises(SqsError) as caught:
        validation.check_required(call)
    assert caught.value.kind in {errors.MISSING_PARAMETER, errors.INVALID_PARAMETER_VALUE}


@pytest.mark.parametrize(
    ("name", "members", "missing"),
    [
        ("SendMessage", {"queue_url": "u"}, "MessageBody"),
        ("SendMessage", {"queue_url": "u", "message_body": ""}, "MessageBody"),
        ("DeleteMessage", {"queue_url": "u", "receipt_handle": ""}, "ReceiptHandle"),
        ("ReceiveMessage", {}, "QueueUrl"),
        ("SendMessageBatch", {"queue_url": "u"}, "Entries"),
        ("AddPermission", {"queue_url": "u", "label": "l", "aws_account_ids": []}, "ActionName"),
        ("SetQueueAttributes", {"queue_url": "u"}, "Attributes"),
        (
            "ChangeMessageVisibility",
            {"queue_url": "u", "receipt_handle": "h"},
            "VisibilityTimeout",
        ),
    ],
)
def test_the_missing_parameter_is_named(name: str, members: dict, missing: str) -> None:
    action = ACTIONS[name]
    with refused(errors.MISSING_PARAMETER, f"The request must contain the parameter {missing}."):
        validation.check_required(Call(action, action.request(**members)))


@pytest.mark.parametrize("name", ["CreateQueue", "GetQueueUrl"])
def test_a_missing_queue_name_has_its_own_text(name: str) -> None:
    message = "Value for parameter QueueName is invalid. Reason: Must specify a queue name."
    with refused(errors.INVALID_PARAMETER_VALUE, message):
        validation.check_required(Call(ACTIONS[name], ACTIONS[name].request()))


def test_complete_calls_pass() -> None:
    for name, members in {
        "SendMessage": {"queue_url": "u", "message_body": "b"},
        "ChangeMessageVisibility": {
            "queue_url": "u",
            "receipt_handle": "h",
            "visibility_timeout": 0,
        },
        "CreateQueue": {"queue_name": "q"},
    }.items():
        validation.check_required(Call(ACTIONS[name], ACTIONS[name].request(**members)))


# --- queues ------------------------------------------------------------------------------------


def test_create_queue_gives_canonical_attributes() -> None:
    request = CreateQueueRequest(
        queue_name="q.fifo",
        attributes={"FifoQueue": "True", "DelaySeconds": "05"},
        tags={"k": ""},
    )
    assert validation.check_create_queue(request) == {"FifoQueue": "true", "DelaySeconds": "5"}
    assert validation.check_create_queue(CreateQueueRequest(queue_name="q")) == {}


@pytest.mark.parametrize(
    ("name", "attributes", "kind"),
    [
        ("q.fifo", {}, errors.INVALID_PARAMETER_VALUE),
        ("q.fifo", {"FifoQueue": "false"}, errors.INVALID_PARAMETER_VALUE),
        ("q", {"FifoQueue": "true"}, errors.INVALID_PARAMETER_VALUE),
        ("q", {"FifoQueue": "false"}, errors.INVALID_ATTRIBUTE_NAME),
        ("", {}, errors.INVALID_PARAMETER_VALUE),
    ],
)
def test_name_and_fifo_attribute_must_agree(name: str, attributes: dict, kind: ErrorKind) -> None:
    with pytest.raises(SqsError) as caught:
        validation.check_create_queue(CreateQueueRequest(queue_name=name, attributes=attributes))
    assert caught.value.kind is kind


def test_tags() -> None:
    validation.check_tags({"k" * 128: "v" * 256, "ü": ""}, existing={})
    validation.check_tags({f"k{n}": "" for n in range(50)}, existing={"k1": "old"})
    validation.check_tag_keys(["k"])
    with refused(errors.MISSING_PARAMETER, "The request must contain the parameter Tags."):
        validation.check_tags({}, existing={})
    with refused(errors.MISSING_PARAMETER, "The request must contain the parameter TagKey."):
        validation.check_tag_keys([])
    for tags in ({"": ""}, {"k" * 129: ""}, {"AWS:x": ""}, {"k": "v" * 257}):
        with pytest.raises(SqsError):
            validation.check_tags(tags, existing={})
    message = "Too many tags added for queue: the maximum is 50."
    with refused(errors.INVALID_PARAMETER_VALUE, message):
        validation.check_tags({f"k{n}": "" for n in range(50)}, existing={"other": ""})


# --- receiving ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (
            {"max_number_of_messages": 11},
            (
                "Value 11 for parameter MaxNumberOfMessages is invalid. Reason: Must "
                "be between 1 and "
                "10, if provided."
            ),
        ),
        (
            {"max_number_of_messages": 0},
            (
                "Value 0 for parameter MaxNumberOfMessages is invalid. Reason: Must be "
                "between 1 and "
                "10, if provided."
            ),
        ),
        (
            {"wait_time_seconds": 21},
            (
                "Value 21 for parameter WaitTimeSeconds is invalid. Reason: Must be >= "
                "0 and <= 20, if "
                "provided."
            ),
        ),
        (
            {"visibility_timeout": 43201},
            (
                "Value 43201 for parameter VisibilityTimeout is invalid. Reason: Must "
                "be >= 0 and <= "
                "43200, if provided."
            ),
        ),
        (
            {"receive_request_attempt_id": "a b"},
            (
                "Value a b for parameter ReceiveRequestAttemptId is invalid. Reason: "
                "ReceiveRequestAttemptId can only include alphanumeric and punctuation "
                "characters. 1 "
                "to 128 in length."
            ),
        ),
    ],
)
def test_ranges_of_a_receive(members: dict, message: str) -> None:
    with refused(errors.INVALID_PARAMETER_VALUE, message):
        validation.check_receive(ReceiveMessageRequest(**members))


def test_the_ends_of_the_ranges_pass() -> None:
    validation.check_receive(ReceiveMessageRequest())
    for count, wait_s, timeout_s in ((1, 0, 0), (10, 20, 43200)):
        validation.check_receive(
            ReceiveMessageRequest(
                max_number_of_messages=count,
                wait_time_seconds=wait_s,
                visibility_timeout=timeout_s,
                receive_request_attempt_id="!~" * 64,
            )
        )


def test_a_changed_visibility() -> None:
    for timeout_s in (0, 43200):
        request = ChangeMessageVisibilityRequest(visibility_timeout=timeout_s)
        assert validation.check_visibility(request) == timeout_s
    for timeout_s in (-1, 43201, 10**30):
        message = (
            f"Value {timeout_s} for parameter VisibilityTimeout is invalid. Reason: "
            "VisibilityTimeout must be an integer between 0 and 43200."
        )
        with refused(errors.INVALID_PARAMETER_VALUE, message):
            validation.check_visibility(
                ChangeMessageVisibilityRequest(visibility_timeout=timeout_s)
            )
    with pytest.raises(SqsError):
        validation.check_visibility(ChangeMessageVisibilityRequest())


# --- messages ----------------------------------------------------------------------------------


def test_a_right_message_gives_its_bytes() -> None:
    message = SendMessageRequest(
        message_body="wörld\r\n",
        delay_seconds=900,
        message_group_id="tenant-1",
        message_attributes={"a": value("x")},
    )
    assert validation.check_message(message, STANDARD) == "wörld\r\n".encode()
    ordered = SendMessageRequest(
        message_body="b", delay_seconds=0, message_group_id="g", message_deduplication_id="d"
    )
    assert validation.check_message(ordered, FIFO) == b"b"
    by_content = SendMessageRequest(message_body="b", message_group_id="g")
    assert validation.check_message(by_content, FIFO_BY_CONTENT) == b"b"


@pytest.mark.parametrize(
    ("members", "rules", "kind", "message"),
    [
        (
            {"message_body": ""},
            STANDARD,
            errors.MISSING_PARAMETER,
            "The request must contain the parameter MessageBody.",
        ),
        (
            {"message_body": "a\x08b"},
            STANDARD,
            errors.INVALID_MESSAGE_CONTENTS,
            (
                "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to "
                "#xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF"
            ),
        ),
        (
            {"message_body": "x" * 1025},
            SendRules(message_bytes_max=1024),
            errors.INVALID_PARAMETER_VALUE,
            "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes.",
        ),
        (
            {"delay_seconds": 901},
            STANDARD,
            errors.INVALID_PARAMETER_VALUE,
            (
                "Value 901 for parameter DelaySeconds is invalid. Reason: DelaySeconds "
                "must be >= 0 "
                "and <= 900."
            ),
        ),
        (
            {"delay_seconds": -1},
            STANDARD,
            errors.INVALID_PARAMETER_VALUE,
            (
                "Value -1 for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 "
                "and <= 900."
            ),
        ),
        (
            {"delay_seconds": 2},
            FIFO,
            errors.INVALID_PARAMETER_VALUE,
            f"Value 2 for parameter DelaySeconds is invalid. Reason: {WRONG_TYPE}",
        ),
        (
            {"message_deduplication_id": "d"},
            STANDARD,
            errors.INVALID_PARAMETER_VALUE,
            f"Value d for parameter MessageDeduplicationId is invalid. Reason: {WRONG_TYPE}",
        ),
        (
            {"message_group_id": "a b"},
            STANDARD,
            errors.INVALID_PARAMETER_VALUE,
            (
                "Value a b for parameter MessageGroupId is invalid. Reason: "
                "MessageGroupId can only "
                "include alphanumeric and punctuation characters. 1 to 128 in length."
            ),
        ),
        (
            {"message_group_id": "x" * 129},
            STANDARD,
            errors.INVALID_PARAMETER_VALUE,
            (
                f"Value {'x' * 129} for parameter MessageGroupId is invalid. Reason: "
                f"MessageGroupId "
                "can only include alphanumeric and punctuation characters. 1 to 128 in length."
            ),
        ),
        (
            {},
            FIFO,
            errors.MISSING_PARAMETER,
            "The request must contain the parameter MessageGroupId.",
        ),
        ({"message_group_id": "g"}, FIFO, errors.INVALID_PARAMETER_VALUE, DEDUPLICATION),
    ],
)
def test_wrong_messages(members: dict, rules: SendRules, kind: ErrorKind, message: str) -> None:
    with refused(kind, message):
        validation.check_message(SendMessageRequest(**{"message_body": "b", **members}), rules)


def test_attributes_count_towards_the_size_and_the_trace_header_does_not() -> None:
    message = SendMessageRequest(
        message_body="b" * 1000,
        message_attributes={
            "name": value("text"),
            "bin": value(None, "Binary", binary_value=b"12"),
        },
        message_system_attributes={"AWSTraceHeader": value("x" * 1000)},
    )
    size = len("nameStringtext" + "binBinary12")
    assert size_of_attributes(message.message_attributes) == size
    validation.check_message(message, SendRules(message_bytes_max=1000 + size))
    with pytest.raises(SqsError):
        validation.check_message(message, SendRules(message_bytes_max=1000 + size - 1))


# --- message attributes ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "A-b_9.c", "x" * 256, "weir.more", "awsome"])
def test_right_attribute_names(name: str) -> None:
    check_attributes({name: value("x")})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "The request must contain non-empty message (user) attribute names."),
        ("x" * 257, "Message (user) attribute name must be shorter than 256 bytes."),
        (
            "aWs.x",
            (
                "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These "
                "strings are reserved for internal use."
            ),
        ),
        (
            "AMAZON.x",
            (
                "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These "
                "strings are reserved for internal use."
            ),
        ),
        (".x", "Message (user) attribute name must not begin with character '.'."),
        ("x.", "Message (user) attribute name must not end with character '.'."),
        ("x..y", "Message (user) attribute name must not have successive '.' characters."),
        *(
            (
                name,
                (
                    f"The message attribute name '{name}' is invalid. Attribute name can contain "
                    "A-Z, a-z, 0-9, underscore (_), hyphen (-), and period (.) characters."
                ),
            )
            for name in ("x!", "öther", "attr.1ß", "a b", "١")
        ),
    ],
)
def test_wrong_attribute_names(name: str, message: str) -> None:
    with refused(errors.INVALID_PARAMETER_VALUE, message):
        check_attributes({name: value("x")})


@pytest.mark.parametrize(
    "attribute",
    [
        value("x", "String.label"),
        value("-1.5e-10", "Number"),
        value("1234567890123456789012", "Number.bigint"),
        value(None, "Binary.png", binary_value=b"\x00"),
        value("x", binary_value=None),
    ],
)
def test_right_attribute_values(attribute: MessageAttributeValue) -> None:
    check_attributes({"a": attribute})


LISTS = "Message attribute list values in SendMessage operation are not supported."
TYPES = "You must use only the following supported type prefixes: Binary, Number, String."


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        (
            value(None, None),
            "The message (user) attribute 'a' must contain a non-empty message attribute value.",
        ),
        (
            value("x", None),
            "The message (user) attribute 'a' must contain a non-empty message attribute type.",
        ),
        (value("x", "Strings"), f"The type of message (user) attribute 'a' is invalid. {TYPES}"),
        (value("x", "Text"), f"The type of message (user) attribute 'a' is invalid. {TYPES}"),
        (
            value("x", "String." + "y" * 249),
            "Message (user) attribute type must be shorter than 256 bytes.",
        ),
        (
            value(""),
            "Message (user) attribute 'a' must contain a non-empty value of type 'String'.",
        ),
        (
            value(None, "Number"),
            "Message (user) attribute 'a' must contain a non-empty value of type 'Number'.",
        ),
        (
            value(None, "Binary", binary_value=b""),
            "Message (user) attribute 'a' must contain a non-empty value of type 'Binary'.",
        ),
        (
            value("x", binary_value=b"x"),
            "Message (user) attribute 'a' must have a single value.",
        ),
        (
            value("x", "Binary"),
            "Message (user) attribute 'a' with type 'Binary' must use field 'Binary'.",
        ),
        (
            value(None, "String", binary_value=b"x"),
            "Message (user) attribute 'a' with type 'String' must use field 'String'.",
        ),
        (
            value("world", "Number"),
            "Can't cast the value of message (user) attribute 'a' to a number.",
        ),
        (value("a\x00"), errors.INVALID_MESSAGE_CONTENTS.message),
        (value(None, "StringList", string_list_values=["x"]), LISTS),
        (value(None, "BinaryList", binary_list_values=[b"x"]), LISTS),
    ],
)
def test_wrong_attribute_values(attribute: MessageAttributeValue, message: str) -> None:
    with refused(errors.INVALID_PARAMETER_VALUE, message):
        check_attributes({"a": attribute})


def test_at_most_ten_attributes() -> None:
    check_attributes({f"a{n}": value("x") for n in range(10)})
    message = "Number of message attributes [11] exceeds the allowed maximum [10]."
    with refused(errors.INVALID_PARAMETER_VALUE, message):
        check_attributes({f"a{n}": value("x") for n in range(11)})


def test_only_the_trace_header_may_be_a_system_attribute() -> None:
    check_system_attributes({"AWSTraceHeader": value("Root=1")})
    message = "Message system attribute name 'Hello' is invalid."
    with refused(errors.INVALID_PARAMETER_VALUE, message):
        check_system_attributes({"Hello": value("World")})
    message = "The message system attribute 'AWSTraceHeader' must be of type String."
    with refused(errors.INVALID_PARAMETER_VALUE, message):
        check_system_attributes({"AWSTraceHeader": value("5", "Number")})
    with pytest.raises(SqsError):
        check_system_attributes({"AWSTraceHeader": value("")})


# --- batches -----------------------------------------------------------------------------------


def send(entry_id: str | None, body: str | None = "b", **more) -> SendMessageBatchRequestEntry:
    return SendMessageBatchRequestEntry(id=entry_id, message_body=body, **more)


def sends(*entries: SendMessageBatchRequestEntry) -> SendMessageBatchRequest:
    return SendMessageBatchRequest(entries=list(entries))


@pytest.mark.parametrize(
    ("request_", "kind", "message"),
    [
        (
            sends(),
            errors.EMPTY_BATCH_REQUEST,
            "There should be at least one SendMessageBatchRequestEntry in the request.",
        ),
        (
            DeleteMessageBatchRequest(),
            errors.EMPTY_BATCH_REQUEST,
            "There should be at least one DeleteMessageBatchRequestEntry in the request.",
        ),
        (
            sends(*(send(str(n)) for n in range(20))),
            errors.TOO_MANY_ENTRIES,
            "Maximum number of entries per request are 10. You have sent 20.",
        ),
        (
            sends(send("a"), send(None)),
            errors.MISSING_PARAMETER,
            "The request must contain the parameter SendMessageBatchRequestEntry.2.Id.",
        ),
        (
            ChangeMessageVisibilityBatchRequest(
                entries=[ChangeMessageVisibilityBatchRequestEntry()]
            ),
            errors.MISSING_PARAMETER,
            "The request must contain the parameter ChangeMessageVisibilityBatchRequestEntry.1.Id.",
        ),
        (sends(send("a"), send("a")), errors.BATCH_ENTRY_IDS_NOT_DISTINCT, "Id a repeated."),
    ],
)
def test_wrong_batches(request_, kind: ErrorKind, message: str) -> None:
    with refused(kind, message):
        validation.check_batch(request_)


@pytest.mark.parametrize("entry_id", ["", "x" * 81, "invalid:id", "é", " ", "a\n"])
def test_wrong_batch_ids(entry_id: str) -> None:
    message = (
        "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It "
        "can be at most 80 letters long."
    )
    with refused(errors.INVALID_BATCH_ENTRY_ID, message):
        validation.check_batch(sends(send(entry_id)))


def test_a_standard_batch_sends_what_is_right_and_reports_the_rest() -> None:
    entries = [send("a"), send("b", ""), send("c", "x\x00"), send("d", delay_seconds=901)]
    bodies, failed = validation.check_send_batch(sends(*entries), STANDARD)
    assert bodies == [b"b", None, None, None]
    assert [(entry.id, entry.code, entry.sender_fault) for entry in failed] == [
        ("b", "MissingParameter", True),
        ("c", "InvalidMessageContents", True),
        ("d", "InvalidParameterValue", True),
    ]
    assert failed[0].message == (
        "The request must contain the parameter SendMessageBatchRequestEntry.2.MessageBody."
    )


def test_a_fifo_batch_fails_as_a_whole() -> None:
    good = {"message_group_id": "g", "message_deduplication_id": "d"}
    entries = [send("a", **good), send("b", **good)]
    assert validation.check_send_batch(sends(*entries), FIFO) == ([b"b", b"b"], [])
    message = "The request must contain the parameter MessageGroupId."
    with refused(errors.INVALID_PARAMETER_VALUE, message):
        validation.check_send_batch(sends(send("a", **good), send("b")), FIFO)
    with refused(errors.INVALID_PARAMETER_VALUE, DEDUPLICATION):
        validation.check_send_batch(sends(send("a", message_group_id="g")), FIFO)


def test_a_batch_has_a_size_of_its_own() -> None:
    half = "x" * (512 * 1024)
    entries = [send("a", half), send("b", half)]
    bodies, failed = validation.check_send_batch(sends(*entries), STANDARD)
    assert (len(bodies), failed) == (2, [])
    message = "Batch requests cannot be longer than 1048576 bytes. You have sent 1048577 bytes."
    with refused(errors.BATCH_REQUEST_TOO_LONG, message):
        validation.check_send_batch(sends(*entries, send("c", "x")), STANDARD)


def test_a_queues_own_limit_fails_single_entries() -> None:
    entries = [send("a", "x" * 1024), send("b", "x" * 1025)]
    _, failed = validation.check_send_batch(sends(*entries), SendRules(message_bytes_max=1024))
    assert [entry.id for entry in failed] == ["b"]


@given(
    st.builds(
        SendMessageRequest,
        message_body=st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        delay_seconds=st.none() | st.integers(),
        message_group_id=st.none() | st.text(),
        message_deduplication_id=st.none() | st.text(),
    ),
    st.builds(SendRules, st.booleans(), st.booleans(), st.integers(1024, 1_048_576)),
)
def test_only_our_error_leaves_the_checks(message: SendMessageRequest, rules: SendRules) -> None:
    try:
        body = validation.check_message(message, rules)
    except SqsError:
        return
    assert body.decode() == message.message_body
