from __future__ import annotations

import json

import pytest

from adapters.sqs import error_codes as errors
from adapters.sqs.error_codes import ErrorKind, SqsError
from adapters.sqs.queues import policies, queue_attributes
from adapters.sqs.queues.policies import RedriveAllowPolicy, RedrivePolicy
from adapters.sqs.queues.queue_attributes import check_for_create, check_for_set, first_difference

DLQ = "arn:aws:sqs:us-east-1:123456789012:dlq"
RANGES = {
    "DelaySeconds": (0, 900, "0"),
    "MaximumMessageSize": (1024, 1048576, "1048576"),
    "MessageRetentionPeriod": (60, 1209600, "345600"),
    "ReceiveMessageWaitTimeSeconds": (0, 20, "0"),
    "VisibilityTimeout": (0, 43200, "30"),
}


def refusal(attributes: dict, *, fifo: bool = False) -> SqsError:
    with pytest.raises(SqsError) as caught:
        check_for_create(attributes, fifo=fifo)
    return caught.value


@pytest.mark.parametrize("name", RANGES)
def test_ranges_and_defaults(name: str) -> None:
    smallest, largest, default = RANGES[name]
    assert queue_attributes.defaults(fifo=False)[name] == default
    for number in (smallest, largest):
        assert check_for_create({name: str(number)}, fifo=False) == {name: str(number)}
    for wrong in (str(smallest - 1), str(largest + 1), "", " 6", "6.5", "true", "٣", "9" * 5000):
        error = refusal({name: wrong})
        assert error.kind is errors.INVALID_ATTRIBUTE_VALUE
        assert error.message == f"Invalid value for the parameter {name}."


def test_defaults_of_both_kinds_of_queue() -> None:
    standard = queue_attributes.defaults(fifo=False)
    fifo = queue_attributes.defaults(fifo=True)
    assert standard["SqsManagedSseEnabled"] == "true"
    assert fifo.items() - standard.items() == {
        ("FifoQueue", "true"),
        ("ContentBasedDeduplication", "false"),
        ("DeduplicationScope", "queue"),
        ("FifoThroughputLimit", "perQueue"),
    }
    assert check_for_create(fifo, fifo=True) == fifo
    assert check_for_create(standard, fifo=False) == standard


def test_values_become_canonical() -> None:
    asked = {"FifoQueue": "True", "ContentBasedDeduplication": "FALSE", "DelaySeconds": "007"}
    assert check_for_create(asked, fifo=True) == {
        "FifoQueue": "true",
        "ContentBasedDeduplication": "false",
        "DelaySeconds": "7",
    }


@pytest.mark.parametrize(
    ("attributes", "fifo", "kind", "message"),
    [
        ({"Colour": "red"}, False, errors.INVALID_ATTRIBUTE_NAME, "Unknown Attribute Colour."),
        ({"All": "1"}, False, errors.INVALID_ATTRIBUTE_NAME, "Unknown Attribute All."),
        ({"QueueArn": "x"}, False, errors.INVALID_ATTRIBUTE_NAME, "Unknown Attribute QueueArn."),
        (
            {"FifoQueue": "false"},
            False,
            errors.INVALID_ATTRIBUTE_NAME,
            "Unknown Attribute FifoQueue.",
        ),
        (
            {"ContentBasedDeduplication": "true"},
            False,
            errors.INVALID_ATTRIBUTE_NAME,
            "Unknown Attribute ContentBasedDeduplication.",
        ),
        (
            {"DeduplicationScope": "queue"},
            False,
            errors.INVALID_ATTRIBUTE_NAME,
            "You can specify the DeduplicationScope only when FifoQueue is set to true.",
        ),
        (
            {"DeduplicationScope": "world"},
            True,
            errors.INVALID_ATTRIBUTE_VALUE,
            "Invalid value for the parameter DeduplicationScope.",
        ),
        (
            {"FifoThroughputLimit": "perMessageGroupId"},
            True,
            errors.INVALID_ATTRIBUTE_VALUE,
            (
                "Invalid value for the parameter FifoThroughputLimit. Reason: perMessageGroupId is "
                "allowed only when DeduplicationScope is messageGroup."
            ),
        ),
        (
            {"ContentBasedDeduplication": "yes"},
            True,
            errors.INVALID_ATTRIBUTE_VALUE,
            "Invalid value for the parameter ContentBasedDeduplication.",
        ),
        (
            {"SqsManagedSseEnabled": "true", "KmsMasterKeyId": "alias/aws/sqs"},
            False,
            errors.INVALID_ATTRIBUTE_NAME,
            (
                "You can use one type of server-side encryption (SSE) at one time. You can either "
                "enable KMS SSE or SQS SSE."
            ),
        ),
        (
            {"KmsDataKeyReusePeriodSeconds": "59"},
            False,
            errors.INVALID_ATTRIBUTE_VALUE,
            "Invalid value for the parameter KmsDataKeyReusePeriodSeconds.",
        ),
        (
            {"KmsMasterKeyId": "x" * 2049},
            False,
            errors.INVALID_ATTRIBUTE_VALUE,
            "Invalid value for the parameter KmsMasterKeyId.",
        ),
    ],
)
def test_wrong_attributes(attributes: dict, fifo: bool, kind: ErrorKind, message: str) -> None:
    error = refusal(attributes, fifo=fifo)
    assert (error.kind, error.message) == (kind, message)


def test_setting_the_type_of_a_queue() -> None:
    assert check_for_set({"FifoQueue": "true"}, {}, fifo=True) == {"FifoQueue": "true"}
    with pytest.raises(SqsError) as caught:
        check_for_set({"FifoQueue": "false"}, {}, fifo=True)
    assert caught.value.kind is errors.INVALID_ATTRIBUTE_VALUE
    assert caught.value.message == (
        "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported."
    )
    with pytest.raises(SqsError) as caught:
        check_for_set({"FifoQueue": "true"}, {}, fifo=False)
    assert caught.value.message == "Unknown Attribute FifoQueue."


def test_high_throughput_looks_at_what_is_set_already() -> None:
    scope, limit = {"DeduplicationScope": "messageGroup"}, {
        "FifoThroughputLimit": "perMessageGroupId"
    }  # fmt: skip
    assert check_for_set(limit, scope, fifo=True) == limit
    assert check_for_create(scope | limit, fifo=True) == scope | limit
    with pytest.raises(SqsError):
        check_for_set({"DeduplicationScope": "queue"}, scope | limit, fifo=True)


def test_a_key_switches_the_other_encryption_off() -> None:
    key = {"KmsMasterKeyId": "alias/aws/sqs"}
    both = key | {"SqsManagedSseEnabled": "false"}
    assert check_for_create(key, fifo=False) == both
    with pytest.raises(SqsError):
        check_for_set({"SqsManagedSseEnabled": "true"}, both, fifo=False)
    back = {"SqsManagedSseEnabled": "true", "KmsMasterKeyId": ""}
    assert check_for_set(back, both, fifo=False) == back


def test_the_reuse_period_of_a_key_leaves_with_it() -> None:
    period = {"KmsDataKeyReusePeriodSeconds": "60"}
    held = {"KmsMasterKeyId": "alias/key", "SqsManagedSseEnabled": "false"} | period
    gone = {"KmsMasterKeyId": "", "KmsDataKeyReusePeriodSeconds": ""}
    assert check_for_set({"KmsMasterKeyId": ""}, held, fifo=False) == gone
    assert check_for_set({"KmsMasterKeyId": ""} | period, {}, fifo=False) == gone
    assert check_for_set(period, held, fifo=False) == period


def test_an_empty_value_takes_a_document_back() -> None:
    empty = {"Policy": "", "RedrivePolicy": "", "RedriveAllowPolicy": "", "KmsMasterKeyId": ""}
    assert check_for_set(empty, {}, fifo=False) == empty
    assert check_for_create(empty, fifo=False) == {}


def test_the_first_difference_names_the_attribute() -> None:
    existing = queue_attributes.defaults(fifo=False) | {"DelaySeconds": "5"}
    assert first_difference({}, existing) is None
    assert first_difference({"DelaySeconds": "5", "VisibilityTimeout": "30"}, existing) is None
    assert first_difference({"DelaySeconds": "6"}, existing) == "DelaySeconds"
    assert first_difference({"RedrivePolicy": "{}"}, existing) == "RedrivePolicy"


# --- documents ---------------------------------------------------------------------------------


def test_a_redrive_policy() -> None:
    for count in (5, "5"):
        text = json.dumps({"deadLetterTargetArn": DLQ, "maxReceiveCount": count})
        assert policies.parse_redrive_policy(text, fifo=False) == RedrivePolicy(DLQ, 5)
        assert check_for_create({"RedrivePolicy": text}, fifo=False) == {"RedrivePolicy": text}
    text = json.dumps({"deadLetterTargetArn": DLQ + ".fifo", "maxReceiveCount": 1000})
    assert policies.parse_redrive_policy(text, fifo=True).receive_count_max == 1000


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ({}, "Redrive policy does not contain mandatory attribute: maxReceiveCount."),
        (
            {"maxReceiveCount": 5},
            "Redrive policy does not contain mandatory attribute: deadLetterTargetArn.",
        ),
        (
            {"deadLetterTargetArn": "dummy", "maxReceiveCount": 42},
            "Invalid value for deadLetterTargetArn.",
        ),
        (
            {"deadLetterTargetArn": 7, "maxReceiveCount": 42},
            "Invalid value for deadLetterTargetArn.",
        ),
        (
            {"deadLetterTargetArn": "arn:aws:sns:r:123456789012:t", "maxReceiveCount": 5},
            "Only SQS queues are valid resources for deadLetterTargetArn.",
        ),
        (
            {"deadLetterTargetArn": DLQ + ".fifo", "maxReceiveCount": 5},
            "Dead-letter queue must be same type of queue as the source..",
        ),
        (
            {"deadLetterTargetArn": DLQ, "maxReceiveCount": 5, "dummyField": "dummy value"},
            "Only following attributes are supported: [maxReceiveCount, deadLetterTargetArn].",
        ),
        *(
            (
                {"deadLetterTargetArn": DLQ, "maxReceiveCount": count},
                (
                    f"Invalid value for maxReceiveCount: {count}, valid values are from 1 "
                    f"to 1000 both "
                    "inclusive."
                ),
            )
            for count in (-36, 0, 1001, "x", True, 1.5, None)
        ),
    ],
)
def test_wrong_redrive_policies(policy: dict, reason: str) -> None:
    text = json.dumps(policy)
    error = refusal({"RedrivePolicy": text})
    assert error.kind is errors.INVALID_PARAMETER_VALUE
    assert error.message == f"Value {text} for parameter RedrivePolicy is invalid. Reason: {reason}"


@pytest.mark.parametrize("text", [" ", "4", "[]", "{", "[" * 5000, '{"a":"' + "x" * 9000 + '"}'])
def test_what_is_no_json_object_is_no_redrive_policy(text: str) -> None:
    error = refusal({"RedrivePolicy": text})
    assert error.kind is errors.INVALID_ATTRIBUTE_VALUE
    assert error.message == (
        "Invalid value for the parameter RedrivePolicy. Reason: Redrive policy is not a valid "
        "JSON map."
    )


def test_a_missing_dead_letter_queue_has_its_text() -> None:
    assert policies.dead_letter_target_missing("{}").message == (
        "Value {} for parameter RedrivePolicy is invalid. Reason: Dead letter target does not "
        "exist."
    )


def test_a_redrive_allow_policy() -> None:
    by_queue = policies.parse_redrive_allow_policy(
        json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": ["a", "b"]})
    )
    assert by_queue == RedriveAllowPolicy("byQueue", ("a", "b"))
    assert (by_queue.allows("a"), by_queue.allows("c")) == (True, False)
    assert policies.parse_redrive_allow_policy('{"redrivePermission":"allowAll"}').allows("a")
    assert not policies.parse_redrive_allow_policy('{"redrivePermission":"denyAll"}').allows("a")


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (
            {"redrivePermission": "byQueue"},
            (
                "When you specify the byQueue permission type, you must also specify one or more "
                "sourceQueueArns values."
            ),
        ),
        (
            {"redrivePermission": "byQueue", "sourceQueueArns": [f"a{n}" for n in range(11)]},
            "The maximum number of source queue ARNs you can specify is 10.",
        ),
        (
            {"redrivePermission": "denyAll", "sourceQueueArns": ["a"]},
            "To specify one or more source queue ARNs, you must set redrivePermission to byQueue.",
        ),
    ],
)
def test_wrong_redrive_allow_policies(policy: dict, reason: str) -> None:
    text = json.dumps(policy)
    assert refusal({"RedriveAllowPolicy": text}).message == (
        f"Value {text} for parameter RedriveAllowPolicy is invalid. Reason: Amazon SQS can't "
        f"create the redrive allow policy. {reason}"
    )


@pytest.mark.parametrize(
    "text",
    [
        "badjson",
        "444",
        "[]",
        "{}",
        '{"redrivePermission":"dummy"}',
        '{"redrivePermission":["allowAll"]}',
        '{"redrivePermission":"allowAll","dummy":"value"}',
        '{"redrivePermission":"byQueue","sourceQueueArns":"arn"}',
        '{"redrivePermission":"byQueue","sourceQueueArns":[{}]}',
    ],
)
def test_what_is_no_redrive_allow_policy(text: str) -> None:
    error = refusal({"RedriveAllowPolicy": text})
    assert error.kind is errors.INVALID_ATTRIBUTE_VALUE
    assert "unsupported format" in error.message


def test_the_form_of_a_policy() -> None:
    statement = {"Effect": "Allow"}
    for statements in (statement, [statement], [statement] * 20):
        policies.check_policy(json.dumps({"Version": "2012-10-17", "Statement": statements}))
    for wrong in ("badjson", "[]", "null", "{}", '{"Statement":[]}', '{"Statement":5}'):
        assert refusal({"Policy": wrong}).message == "Invalid value for the parameter Policy."
    error = refusal({"Policy": json.dumps({"Statement": [statement] * 22})})
    assert error.kind is errors.OVER_LIMIT
    assert error.message == ("22 statements were found in the submitted policy, max allowed is 20")
