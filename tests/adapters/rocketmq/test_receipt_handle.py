"""Receipt handles: opaque, bound to a group and a topic, and never an exception of another kind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.rocketmq.codec.receipt_handle import Handles
from adapters.rocketmq.errors import Code, RocketmqError

HANDLES = Handles("default", "topic", "group")


@given(st.binary(min_size=1, max_size=512))
def test_a_token_comes_back(token: bytes) -> None:
    assert HANDLES.decode(HANDLES.encode(token).decode()) == token


@given(st.binary(min_size=24, max_size=24))
def test_a_handle_is_safe_in_a_url(token: bytes) -> None:
    assert not set(b"+/ ") & set(HANDLES.encode(token))


@pytest.mark.parametrize(
    "other",
    [
        Handles("other", "topic", "group"),
        Handles("default", "topic2", "group"),
        Handles("default", "topic", "group2"),
        Handles("default", "topi", "cgroup"),
    ],
)
def test_a_handle_of_another_group_or_topic_is_refused(other: Handles) -> None:
    with pytest.raises(RocketmqError) as caught:
        HANDLES.decode(other.encode(b"x" * 24).decode())
    assert caught.value.code is Code.INVALID_RECEIPT_HANDLE


@given(st.text())
def test_any_text_is_refused_in_words(text: str) -> None:
    with pytest.raises(RocketmqError) as caught:
        HANDLES.decode(text)
    assert caught.value.code is Code.INVALID_RECEIPT_HANDLE


@given(st.data())
def test_a_changed_character_is_noticed(data: st.DataObject) -> None:
    handle = HANDLES.encode(bytes(range(24))).decode()
    place = data.draw(st.integers(0, len(handle) - 1))
    other = data.draw(st.sampled_from("ABCabc012_-=").filter(lambda each: each != handle[place]))
    with pytest.raises(RocketmqError):
        HANDLES.decode(handle[:place] + other + handle[place + 1 :])
