"""The router `weir.topics`: topics by their names, and copies of what is written to them."""

from __future__ import annotations

import pytest

from kernel.api.client import DeleteRoute, DeleteRouter, DeleteTopic, PutRoute, PutRouter
from kernel.api.model import (
    DEFAULT_TENANT,
    TOPICS_ROUTER,
    Match,
    Route,
    RouterOptions,
    TopicOptions,
)
from kernel.common.errors import Code, KernelError
from tests.simulator.world import World, simulated

BOTH = pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])


async def copy(world: World, source: str, target: str) -> None:
    route = Route(key=source, topic=target)
    await world.client.administer(PutRoute(DEFAULT_TENANT, TOPICS_ROUTER, route))


def names(world: World, router: str, key: str) -> list[str]:
    found = world.client.topology.find(DEFAULT_TENANT, router, key, None)
    return [topic.name for topic in found.topics]


@BOTH
@simulated()
async def test_what_anybody_writes_to_a_topic_is_copied(world: World, durable: bool) -> None:
    peer = world.peer()
    topic = await peer.topic("a.b")
    await peer.topic("queue", TopicOptions(durable=durable))
    assert names(world, TOPICS_ROUTER, "a.b") == ["a.b"]
    version = world.client.topology_version
    await copy(world, "a.b", "queue")
    assert world.client.topology_version > version
    options = RouterOptions(match=Match.ALL)
    await world.client.administer(PutRouter(DEFAULT_TENANT, "fan", options))
    await world.client.administer(PutRoute(DEFAULT_TENANT, "fan", Route(topic="a.b")))
    to_router = world.client.to_router
    await peer.publish(topic, b"straight")
    await peer.publish(to_router(DEFAULT_TENANT, TOPICS_ROUTER, "a.b"), b"by name")
    await peer.publish(to_router(DEFAULT_TENANT, "fan", "x"), b"routed")
    for name in ("a.b", "queue"):
        info = world.client.topic(DEFAULT_TENANT, name)
        assert info is not None
        recorder = peer.attach(info, credit=9)
        await world.settle_down()
        assert recorder.bodies == [b"straight", b"by name", b"routed"]


@simulated()
async def test_copies_of_copies_come_once_whatever_the_circle(world: World) -> None:
    peer = world.peer()
    for name in "abc":
        await peer.topic(name)
    for source, target in ("ab", "bc", "ca", "ac"):
        await copy(world, source, target)
    assert sorted(names(world, TOPICS_ROUTER, "a")) == ["a", "b", "c"]
    await world.client.administer(DeleteTopic(DEFAULT_TENANT, "b"))
    assert sorted(names(world, TOPICS_ROUTER, "a")) == ["a", "c"]
    change = DeleteRoute(DEFAULT_TENANT, TOPICS_ROUTER, Route(key="a", topic="c"))
    assert await world.client.administer(change) is True
    assert names(world, TOPICS_ROUTER, "a") == ["a"]


@simulated()
async def test_copies_outlive_a_crash_and_a_missing_topic_is_unroutable(world: World) -> None:
    peer = world.peer()
    await peer.topic("a")
    await peer.topic("b")
    await copy(world, "a", "b")
    await copy(world, "missing", "b")
    await world.crash()
    assert names(world, TOPICS_ROUTER, "a") == ["a", "b"]
    assert names(world, TOPICS_ROUTER, "missing") == []


@simulated()
async def test_the_router_is_built_in_and_copies_to_topics_only(world: World) -> None:
    client = world.client
    await world.peer().topic("a")
    await client.administer(PutRouter(DEFAULT_TENANT, "r", RouterOptions()))
    info = client.router(DEFAULT_TENANT, TOPICS_ROUTER)
    assert info is not None
    assert info.options == RouterOptions()
    for change in (
        PutRouter(DEFAULT_TENANT, TOPICS_ROUTER, RouterOptions(match=Match.ALL)),
        DeleteRouter(DEFAULT_TENANT, TOPICS_ROUTER),
        PutRoute(DEFAULT_TENANT, TOPICS_ROUTER, Route(key="a", router="r")),
        PutRoute(DEFAULT_TENANT, "r", Route(key="a", router=TOPICS_ROUTER)),
    ):
        with pytest.raises(KernelError) as caught:
            await client.administer(change)  # type: ignore[arg-type]
        assert caught.value.code is Code.NOT_ALLOWED
