"""Destinations of a message that has several keys."""

from __future__ import annotations

import pytest

from kernel.api.model import TopicInfo, TopicOptions
from kernel.common.errors import Code, KernelError
from kernel.common.ids import RaftGroup, TopicId
from kernel.routing.destinations import Found, united


def _topic(number: int, *, durable: bool = True) -> TopicInfo:
    return TopicInfo(
        "default", f"t{number}", TopicId(number), 1, TopicOptions(durable=durable), {}, ()
    )


def test_each_topic_is_there_once_and_a_durable_one_first() -> None:
    one, two, three = _topic(1, durable=False), _topic(2), _topic(3)
    found = united([Found((one, two)), Found((two, three)), Found(())])
    assert [each.name for each in found.topics] == ["t2", "t3", "t1"]
    assert found.count == 3


def test_of_names_in_the_tree_one_may_lead_somewhere() -> None:
    plain = Found((_topic(1),))
    named = Found((_topic(2),), routed_in=RaftGroup(1), tree_name="a", tenant="default", name=b"a")
    found = united([plain, named])
    assert (found.tree_name, found.routed_in, found.name) == ("a", RaftGroup(1), b"a")
    assert {each.name for each in found.topics} == {"t1", "t2"}
    with pytest.raises(KernelError) as refused:
        united([named, named])
    assert refused.value.code is Code.NOT_ALLOWED
