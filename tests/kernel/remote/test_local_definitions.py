"""Transient topics, routers and routes of a gateway without a store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kernel.api.client import (
    Administration,
    DeleteRoute,
    DeleteRouter,
    DeleteTopic,
    PurgeTopic,
    PutRoute,
    PutRouter,
    PutTopic,
    ReceiveSpec,
)
from kernel.api.model import (
    DEFAULT_GROUP,
    DEFAULT_TENANT,
    DeadLetter,
    GroupOptions,
    Overflow,
    Route,
    RouterOptions,
    TopicInfo,
    TopicOptions,
)
from kernel.common.errors import Code, KernelError
from kernel.common.ids import TRANSIENT_GROUP, Offset, SessionId, home_of
from kernel.common.limits import NAME_BYTES_MAX
from kernel.remote.client import ClusterClient
from kernel.remote.mesh import local_definitions
from tests.kernel.remote.cluster import gateway_of, running_stores
from tests.kernel.remote.local import durable_topic, peer_of, reasons, recorder_at, reject_first
from tests.kernel.three_stores import Node, until

TRANSIENT = TopicOptions(durable=False)


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[tuple[list[Node], ClusterClient]]:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        yield nodes, client


async def refused(client: ClusterClient, change: Administration) -> Code:
    with pytest.raises(KernelError) as caught:
        await client.administer(change)
    assert caught.value.message.isascii()
    return caught.value.code


def put_router(name: str, **options: object) -> PutRouter:
    return PutRouter(DEFAULT_TENANT, name, RouterOptions(**options))  # type: ignore[arg-type]


async def ready(client: ClusterClient, topic: TopicInfo) -> int:
    return (await client.statistics(topic, DEFAULT_GROUP)).ready


async def has_ready(client: ClusterClient, topic: TopicInfo, count: int) -> None:
    """Wait until there are so many."""
    async with asyncio.timeout(10):
        while await ready(client, topic) < count:
            await asyncio.sleep(0.01)
    assert await ready(client, topic) == count


async def test_a_transient_topic_holds_what_is_published_until_it_is_deleted(
    one: tuple[list[Node], ClusterClient],
) -> None:
    _, client = one
    peer = peer_of(client)
    topic = await peer.topic("v", TRANSIENT)
    assert home_of(topic.id) == TRANSIENT_GROUP
    assert client.topic(DEFAULT_TENANT, "v") == topic
    sent = await peer.publish(topic, b"1", b"2", b"3")
    assert not sent.failures
    assert await ready(client, topic) == 3
    assert [slot[-1:] for _, slot in await client.peek(topic, 0, Offset(0), 9)] == [
        b"1",
        b"2",
        b"3",
    ]
    assert await client.administer(PurgeTopic(DEFAULT_TENANT, "v", DEFAULT_GROUP)) == 3
    await peer.publish(topic, b"4")
    assert await refused(client, DeleteTopic(DEFAULT_TENANT, "v", if_empty=True)) is Code.IN_USE
    recorder = recorder_at(client, topic)
    await recorder.wait_for(1)
    assert await refused(client, DeleteTopic(DEFAULT_TENANT, "v", if_unused=True)) is Code.IN_USE
    await client.administer(DeleteTopic(DEFAULT_TENANT, "v"))
    assert client.topic(DEFAULT_TENANT, "v") is None
    assert recorder.error is not None
    assert recorder.error.code is Code.NOT_FOUND


async def test_names_and_options_are_checked(one: tuple[list[Node], ClusterClient]) -> None:
    nodes, client = one
    peer = peer_of(client)
    await peer.topic("v", TRANSIENT)
    durable = await durable_topic(nodes, client, "d")
    groups = {DEFAULT_GROUP: GroupOptions()}
    for code, change in (
        (Code.INVALID_ARGUMENT, PutTopic(DEFAULT_TENANT, "$v", TRANSIENT, groups)),
        (Code.INVALID_ARGUMENT, PutTopic(DEFAULT_TENANT, "x" * 256, TRANSIENT, groups)),
        (Code.ALREADY_EXISTS, PutTopic(DEFAULT_TENANT, "v", TRANSIENT, groups, must_be_new=True)),
        (Code.ALREADY_EXISTS, PutTopic(DEFAULT_TENANT, "v", TopicOptions(), groups)),
        (Code.NOT_FOUND, PutRoute(DEFAULT_TENANT, "none", Route(topic="v"))),
    ):
        assert await refused(client, change) is code, change
    assert NAME_BYTES_MAX < 256
    assert client.topic(DEFAULT_TENANT, "d") == durable
    assert not client.local.is_local(DeleteTopic(DEFAULT_TENANT, "d"))


async def test_transient_topics_are_bounded(
    one: tuple[list[Node], ClusterClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_definitions, "TOPICS_MAX", 2)
    _, client = one
    peer = peer_of(client)
    for name in ("a", "b"):
        await peer.topic(name, TRANSIENT)
    with pytest.raises(KernelError) as caught:
        await peer.topic("c", TRANSIENT)
    assert caught.value.code is Code.LIMIT_EXCEEDED
    await peer.topic("a", TRANSIENT)  # is there already
    await client.administer(DeleteTopic(DEFAULT_TENANT, "a"))
    await peer.topic("c", TRANSIENT)


async def test_a_session_takes_along_what_it_owns(one: tuple[list[Node], ClusterClient]) -> None:
    _, client = one
    peer, other = peer_of(client), peer_of(client)
    own = TopicOptions(durable=False, owner=peer.session.id)
    await peer.topic("own", own)
    await other.topic("others", TopicOptions(durable=False, owner=other.session.id))
    peer.close()
    await until(lambda: client.topic(DEFAULT_TENANT, "own") is None)
    assert client.topic(DEFAULT_TENANT, "others") is not None
    peer.close()
    await other.topic("late", TopicOptions(durable=False, owner=peer.session.id))
    await until(lambda: client.topic(DEFAULT_TENANT, "late") is None)


async def test_a_topic_goes_with_its_last_consumer_or_after_its_time_unused(
    one: tuple[list[Node], ClusterClient],
) -> None:
    _, client = one
    peer = peer_of(client)
    topic = await peer.topic("auto", TopicOptions(durable=False, delete_when_unused=True))
    await peer.topic("short", TopicOptions(durable=False, unused_expiry_ms=1))
    used = await peer.topic("used", TopicOptions(durable=False, unused_expiry_ms=1))
    recorder_at(client, used)
    recorder = recorder_at(client, topic)
    recorder.cancel()
    await until(lambda: client.topic(DEFAULT_TENANT, "auto") is None)
    await until(lambda: client.topic(DEFAULT_TENANT, "short") is None)
    assert client.topic(DEFAULT_TENANT, "used") is not None


async def test_receiving_counts_as_use(one: tuple[list[Node], ClusterClient]) -> None:
    _, client = one
    peer = peer_of(client)
    expiring = TopicOptions(durable=False, unused_expiry_ms=800)
    topic = await peer.topic("asked", expiring)
    await peer.topic("left alone", expiring)
    while client.topic(DEFAULT_TENANT, "left alone") is not None:
        await client.receive(ReceiveSpec(topic, DEFAULT_GROUP, session=peer.session))
        await asyncio.sleep(0.1)
    assert client.topic(DEFAULT_TENANT, "asked") is not None


async def test_routers_and_routes_of_transient_things_lead_and_go(
    one: tuple[list[Node], ClusterClient],
) -> None:
    _, client = one
    peer = peer_of(client)
    topic = await peer.topic("v", TRANSIENT)
    await client.administer(put_router("r", durable=False))
    await client.administer(put_router("auto", durable=False, delete_when_unused=True))
    for router in ("r", "auto"):
        await client.administer(PutRoute(DEFAULT_TENANT, router, Route(key="k", topic="v")))
        await peer.publish(client.to_router(DEFAULT_TENANT, router, "k"), b"1")
    assert await ready(client, topic) == 2
    assert await refused(client, DeleteRouter(DEFAULT_TENANT, "r", if_unused=True)) is Code.IN_USE
    gone = DeleteRoute(DEFAULT_TENANT, "auto", Route(key="k", topic="v"))
    assert await client.administer(gone) is True
    assert client.router(DEFAULT_TENANT, "auto") is None
    await client.administer(DeleteTopic(DEFAULT_TENANT, "v"))
    found = client.router(DEFAULT_TENANT, "r")
    assert found is not None
    assert not found.routes
    await client.administer(DeleteRouter(DEFAULT_TENANT, "r"))
    assert client.router(DEFAULT_TENANT, "r") is None


async def test_a_durable_routers_route_to_a_transient_topic_lives_here_as_long_as_both(
    one: tuple[list[Node], ClusterClient],
) -> None:
    nodes, client = one
    peer = peer_of(client)
    topic = await peer.topic("v", TRANSIENT)
    durable = await durable_topic(nodes, client, "d")
    options = RouterOptions()
    client.topology.put_router(DEFAULT_TENANT, "r", options, [Route(topic="d")])
    await client.administer(PutRoute(DEFAULT_TENANT, "r", Route(topic="v")))
    sent = await peer.publish(client.to_router(DEFAULT_TENANT, "r", ""), b"1")
    assert not sent.failures
    assert await ready(client, topic) == 1
    assert await ready(client, durable) == 1
    kept = client.transient.replica.state.routers
    client.topology.remove_router(DEFAULT_TENANT, "r")  # as the leaders tell
    client.topology.put_router(DEFAULT_TENANT, "r", options, ())  # and made again at once
    await until(lambda: (DEFAULT_TENANT, "r") not in kept)
    found = client.router(DEFAULT_TENANT, "r")
    assert found is not None
    assert not found.routes
    assert client.topic(DEFAULT_TENANT, "v") == topic


async def test_what_is_durable_and_gone_leaves_no_transient_route_to_it(
    one: tuple[list[Node], ClusterClient],
) -> None:
    nodes, client = one
    durable = await durable_topic(nodes, client, "d")
    await client.administer(put_router("r", durable=False, delete_when_unused=True))
    await client.administer(PutRoute(DEFAULT_TENANT, "r", Route(topic="d")))
    client.topology.remove_topic(durable)  # as the leaders tell
    await until(lambda: client.router(DEFAULT_TENANT, "r") is None)


# --- Dead letters ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "is_durable", [False, True], ids=["to a transient one", "to a durable one"]
)
async def test_a_dead_letter_of_a_transient_topic_arrives(
    one: tuple[list[Node], ClusterClient], is_durable: bool
) -> None:
    nodes, client = one
    peer = peer_of(client)
    dead = await (
        durable_topic(nodes, client, "dead") if is_durable else peer.topic("dead", TRANSIENT)
    )
    policy = GroupOptions(dead_letter=DeadLetter(None, "dead"))
    topic = await peer.topic("v", TRANSIENT, policy)
    await peer.publish(topic, b"1")
    await reject_first(client, topic)
    await has_ready(client, dead, 1)
    dead_letters = await client.peek(dead, 0, Offset(0), 9)
    assert [reasons(slot) for _, slot in dead_letters] == [[("v", "rejected")]]
    await until(lambda: not client.transient.replica.state.outbox)


async def test_a_full_transient_topic_refuses_or_dead_letters(
    one: tuple[list[Node], ClusterClient],
) -> None:
    nodes, client = one
    peer = peer_of(client)
    dead = await durable_topic(nodes, client, "dead")
    policy = GroupOptions(dead_letter=DeadLetter(None, "dead"))
    full = TopicOptions(durable=False, messages_max=1, overflow=Overflow.REJECT_DEAD_LETTER)
    topic = await peer.topic("v", full, policy)
    sent = await peer.publish(topic, b"1", b"2", b"3")
    assert [each.code for each in sent.failures.values()] == [Code.REJECTED] * 2
    assert await ready(client, topic) == 1
    await has_ready(client, dead, 2)


async def test_two_gateways_send_their_dead_letters_as_two_clients(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as a, gateway_of(nodes) as b:
        dead = await durable_topic(nodes, a, "dead")
        await durable_topic(nodes, b, "dead")
        for count, client in enumerate((a, b, a, b), 1):
            peer = peer_of(client)
            name = f"v{SessionId(peer.session.id)}"
            topic = await peer.topic(
                name, TRANSIENT, GroupOptions(dead_letter=DeadLetter(None, "dead"))
            )
            await peer.publish(topic, b"x")
            await reject_first(client, topic)
            await has_ready(a, dead, count)
        group = nodes[0].opened.store.replica(dead.queues[0].group)
        senders = {client for client, _ in group.state.clients}
        assert {a.outbox_client, b.outbox_client} <= senders
