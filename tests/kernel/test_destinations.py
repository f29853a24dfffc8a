"""Destinations: of a message that has several keys, and those that others than this process's own
definitions bring (forwarders, further routes).
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kernel.api.message import decode
from kernel.api.model import Route, RouterOptions, TopicInfo, TopicOptions
from kernel.common.errors import Code, KernelError
from kernel.common.ids import RaftGroup, TopicId
from kernel.requests.publish import ProducerBatch
from kernel.routing.destinations import Found, united
from kernel.routing.topology import Topology
from tests.kernel.test_publish import Heard, Host
from tests.simulator.peer import Draft


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


class Forwarder:
    """`destinations.Forwarder`."""

    def __init__(self) -> None:
        self.batches: list[list[tuple[str, bytes]]] = []

    def forward(self, messages: Sequence[tuple[Found, bytes]]) -> None:
        self.batches.append([(found.tree_name, decode(slot).body) for found, slot in messages])


def test_a_forwarder_gets_what_a_batch_has_for_it_at_once_and_each_message_once() -> None:
    tree = Topology().tree
    one, other = Forwarder(), Forwarder()
    for pattern in ("a/+", "a/#", "a/b"):
        tree.add_forwarder("default", pattern, one)
    tree.add_forwarder("default", "a/c", other)
    batch = ProducerBatch(Host(), Heard(), 200)
    for name in ("a/b", "a/c", "a/b", "b"):
        parts = Draft(b"of " + name.encode(), name=name).parts(batch.uid(), 1)
        batch.add(tree.to("default", name, retain=False), parts, sum(map(len, parts)))
    assert not batch.close()  # nothing of it is stored
    batch.hand_over()
    assert one.batches == [[("a/b", b"of a/b"), ("a/c", b"of a/c"), ("a/b", b"of a/b")]]
    assert other.batches == [[("a/c", b"of a/c")]]
    for pattern in ("a/+", "a/#", "a/b"):
        tree.remove_forwarder("default", pattern, one)
    assert tree.to("default", "a/b", retain=False).count == 0
    assert tree.to("default", "a/c", retain=False).forwarders == (other,)


def test_further_routes_are_asked_for_when_their_router_comes() -> None:
    topology = Topology()
    kept = {"r": [Route(key="key", topic="t")]}
    topology.further_routes = lambda _tenant, router: kept.get(router, [])
    topology.put_router("default", "r", RouterOptions(), [Route(key="own", topic="t")])
    topology.put_router("default", "s", RouterOptions(), [])
    assert topology.has_route("default", "r", Route(key="key", topic="t"))
    assert topology.routes_to("default", "topic", "t") == [
        ("r", Route(key="own", topic="t")),
        ("r", Route(key="key", topic="t")),
    ]
    assert topology.route_count("default", "s") == 0


def test_of_routers_that_are_gone_those_are_told_of_that_did_not_live_here() -> None:
    topology = Topology()
    gone: list[str] = []
    topology.gone = lambda _tenant, _kind, name: gone.append(name)
    for name in ("mine", "elsewhere"):
        topology.put_router("default", name, RouterOptions(durable=False), [])
    topology.remove_router("default", "mine", was_here=True)
    topology.remove_router("default", "elsewhere")
    topology.remove_router("default", "elsewhere")  # it was gone already
    assert gone == ["elsewhere"]
