from __future__ import annotations

import pytest

from adapters.sqs import error_codes as errors
from adapters.sqs.actions import paging
from adapters.sqs.codec.shapes import MessageAttributeValue, ReceiveMessageRequest
from adapters.sqs.error_codes import SqsError
from adapters.sqs.messages import selection

VALUE = MessageAttributeValue(data_type="String", string_value="x")
AVAILABLE = {"Hello": VALUE, "General": VALUE, "Help.Me": VALUE}


@pytest.mark.parametrize(
    ("names", "selected"),
    [
        (None, []),
        ([], []),
        (["All"], ["Hello", "General", "Help.Me"]),
        ([".*"], ["Hello", "General", "Help.Me"]),
        (["Foo", "Help"], []),
        (["Hello", "General"], ["Hello", "General"]),
        (["Foo", "Hello"], ["Hello"]),
        (["Hel.*"], ["Hello", "Help.Me"]),
        (["Help.Me"], ["Help.Me"]),
        (["AWS.", "..foo"], []),
    ],
)
def test_message_attributes_by_name_prefix_and_all(names, selected: list[str]) -> None:
    assert list(selection.message_attributes(names, AVAILABLE)) == selected


def test_system_attributes_by_both_parameters() -> None:
    available = {"SenderId": "s", "SentTimestamp": "1", "ApproximateReceiveCount": "1"}
    request = ReceiveMessageRequest(
        message_system_attribute_names=["SenderId"],
        attribute_names=["SentTimestamp", "SequenceNumber"],
    )
    names = selection.system_attribute_names(request)
    assert selection.select(names, available) == {"SenderId": "s", "SentTimestamp": "1"}
    everything = ReceiveMessageRequest(attribute_names=["All"])
    assert selection.select(selection.system_attribute_names(everything), available) == available
    nothing = selection.system_attribute_names(ReceiveMessageRequest())
    assert selection.select(nothing, available) == {}


@pytest.mark.parametrize("member", ["message_system_attribute_names", "attribute_names"])
def test_an_unknown_system_attribute_is_refused(member: str) -> None:
    with pytest.raises(SqsError) as caught:
        selection.system_attribute_names(ReceiveMessageRequest(**{member: ["Foobar"]}))
    assert caught.value.kind is errors.INVALID_ATTRIBUTE_NAME
    assert caught.value.message == "Unknown Attribute Foobar."


def test_the_older_parameter_may_name_queue_attributes() -> None:
    request = ReceiveMessageRequest(attribute_names=["Policy"])
    assert selection.select(selection.system_attribute_names(request), {"SenderId": "s"}) == {}


def test_queue_attributes() -> None:
    names = selection.queue_attribute_names(["QueueArn", "DelaySeconds"])
    available = {"QueueArn": "a", "DelaySeconds": "0", "VisibilityTimeout": "30"}
    assert selection.select(names, available) == {"QueueArn": "a", "DelaySeconds": "0"}
    assert selection.select(selection.queue_attribute_names(["All"]), available) == available
    assert selection.select(selection.queue_attribute_names(None), available) == {}
    with pytest.raises(SqsError) as caught:
        selection.queue_attribute_names(["Foobar"])
    assert caught.value.message == "Unknown Attribute Foobar."


# --- pages -------------------------------------------------------------------------------------

NAMES = [f"q{number:04}" for number in range(2500)]


def test_pages_give_every_name_once() -> None:
    token, seen = None, []
    while True:
        names, token = paging.page(NAMES, 999, token)
        seen += names
        if token is None:
            break
    assert seen == NAMES


def test_without_max_results_there_is_one_page_of_a_thousand_and_no_token() -> None:
    names, token = paging.page(NAMES, None, None)
    assert (len(names), token) == (1000, None)
    assert paging.page([], None, None) == ([], None)


def test_a_page_goes_on_after_names_that_are_gone() -> None:
    _, token = paging.page(["a", "b", "c"], 2, None)
    assert paging.page(["a", "c", "d"], 2, token) == (["c", "d"], None)


@pytest.mark.parametrize("count", [0, 1001, -1])
def test_max_results_has_a_range(count: int) -> None:
    with pytest.raises(SqsError) as caught:
        paging.page(NAMES, count, None)
    assert caught.value.kind is errors.INVALID_PARAMETER_VALUE


@pytest.mark.parametrize("token", ["x", "é", "MjphYmM=", "=", "A" * 5000, "/" * 8])
def test_a_token_that_is_not_ours_is_refused(token: str) -> None:
    with pytest.raises(SqsError) as caught:
        paging.page(NAMES, 10, token)
    assert caught.value.message == "Invalid or expired next token."
