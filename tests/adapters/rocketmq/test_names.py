"""Names of topics, groups and namespaces."""

from __future__ import annotations

import pytest

from adapters.rocketmq import names
from adapters.rocketmq.codec.answer_encoding import Name
from adapters.rocketmq.errors import Code, RocketmqError
from adapters.rocketmq.settings import RocketmqSettings

SETTINGS = RocketmqSettings()


@pytest.mark.parametrize("name", ["a", "Orders_2-x", "9", "x" * 127, "per%cent"])
def test_topics_that_may_be(name: str) -> None:
    assert names.topic_name(name, SETTINGS) == name
    assert names.shown_topic(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "a.b", "a b", "x" * 128, "grün", "a/b", "__metering", "%RETRY%g", "rmq_sys_x", "TBW102"],
)
def test_topics_that_may_not(name: str) -> None:
    with pytest.raises(RocketmqError) as caught:
        names.topic_name(name, SETTINGS)
    assert caught.value.code is Code.ILLEGAL_TOPIC


def test_dead_letters_have_the_reference_name_and_the_kernel_one() -> None:
    assert names.topic_name("%DLQ%billing", SETTINGS) == "dlq.billing"
    assert names.shown_topic("dlq.billing") == "%DLQ%billing"
    with pytest.raises(RocketmqError) as caught:
        names.topic_name("%DLQ%", SETTINGS)
    assert caught.value.code is Code.ILLEGAL_CONSUMER_GROUP


@pytest.mark.parametrize("name", ["default", "g", "x" * 120])
def test_groups_that_may_be(name: str) -> None:
    assert names.group_name(name, SETTINGS) == name


@pytest.mark.parametrize("name", ["", "x" * 121, "a.b", "%SYS", "__g", "ä"])
def test_groups_that_may_not(name: str) -> None:
    with pytest.raises(RocketmqError) as caught:
        names.group_name(name, SETTINGS)
    assert caught.value.code is Code.ILLEGAL_CONSUMER_GROUP


@pytest.mark.parametrize(
    ("header", "sent", "effective"),
    [("", "", ""), ("a", "", "a"), ("", "b", "b"), ("a", "a", "a")],
)
def test_the_namespace_is_the_header_else_the_field(header: str, sent: str, effective: str) -> None:
    assert names.effective_namespace(header, Name(sent, "t")) == effective


def test_two_different_namespaces_are_forbidden() -> None:
    with pytest.raises(RocketmqError) as caught:
        names.effective_namespace("a", Name("b", "t"))
    assert caught.value.code is Code.FORBIDDEN
