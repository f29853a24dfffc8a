"""The topic tree of gateways without a store: two of them, over one store and over three."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from kernel.api.client import Client, Settlement
from kernel.api.model import DEFAULT_TENANT
from kernel.api.tree import Subscription
from kernel.broker.snapshots.tree_snapshot import index_queue
from kernel.common.errors import Code, KernelError
from kernel.common.ids import Offset, RaftGroup
from kernel.common.ports import Clock
from kernel.remote.client import ClusterClient
from kernel.remote.tree import tree_wire as wire
from kernel.requests.publish import ProducerBatch
from kernel.subscribers import local_tree
from tests.kernel import three_stores
from tests.kernel.remote.cluster import gateway_of, running_stores
from tests.kernel.remote.gateway import body_of
from tests.kernel.three_stores import CLOCK, Node, leader_of, until
from tests.kernel.tree_client import Listener, SubscriberClient, retained, tell, will_of
from tests.simulator.peer import Peer, Sent

ONE_AND_THREE = pytest.mark.parametrize("count", [1, 3])
GONE_MS = 300
NAMES = [f"a/{number}" for number in range(8)]
"""In both groups there are some."""


class Far:
    """A gateway. `tree_client.Stage`."""

    def __init__(self, client: ClusterClient) -> None:
        self.far = client
        self.client = cast("Client", client)
        self.clock: Clock = CLOCK

    def peer(self, name: str = "peer") -> Peer:
        return Peer(self.client, CLOCK, name)

    async def listed(self, nodes: list[Node], pattern: str) -> list[bytes]:
        """Bodies on the reference lists of a pattern, by group."""
        found: list[bytes] = []
        for group in self.far.groups:
            state = (await leading(nodes, group)).opened.store.replica(group).state
            ident = state.indexes.get((DEFAULT_TENANT, pattern))
            if ident is not None:
                leader = self.far.leader_of(group)
                found += [
                    body_of(slot)
                    for _, slot in await leader.peek(index_queue(ident), Offset(0), 1_000)
                ]
        return found


class Near:
    """The client in a store's own process. `tree_client.Stage`."""

    def __init__(self, node: Node) -> None:
        self.client = node.opened.client
        self.clock: Clock = CLOCK

    def peer(self, name: str = "peer") -> Peer:
        return Peer(self.client, CLOCK, name)


async def leading(nodes: list[Node], group: RaftGroup) -> Node:
    await until(lambda: leader_of(nodes, group))
    node = leader_of(nodes, group)
    assert node is not None
    return node


async def eventually(question: Callable[[], Awaitable[object]], wanted: object) -> None:
    """Ask until the awaited answer is as wanted."""
    async with asyncio.timeout(20):
        while await question() != wanted:
            await asyncio.sleep(0.05)


def unlisted(sent: Sent) -> list[int]:
    return cast("ProducerBatch", sent.batch).unlisted


def unheard(sent: Sent) -> dict[int, int]:
    return dict(cast("ProducerBatch", sent.batch).unheard)


async def test_what_nobody_gets_is_told_with_its_bytes_and_nothing_else(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        gateway = Far(client)
        subscribed = await SubscriberClient.open(gateway, "g", expiry_ms=None)
        await subscribed.subscribe("kept/#")
        listener = Listener(gateway, "live/#")
        await gateway.client.tree.watched()
        sent = await tell(gateway, "a/0", b"four", b"", b"a longer one")
        sizes = unheard(sent)
        assert list(sizes) == unlisted(sent) == [0, 1, 2]
        assert (sizes[0] - sizes[1], sizes[2] - sizes[1]) == (4, 12)
        assert 0 < sizes[1] < 50
        assert unheard(await tell(gateway, "kept/1", b"x")) == {}
        for each in (
            await tell(gateway, "live/1", b"x"),
            await tell(gateway, "a/0", b"x", retain=True),
        ):
            assert (unlisted(each), unheard(each)) == ([0], {})
        assert listener.got == [("live/1", b"x")]


@ONE_AND_THREE
async def test_what_one_gateway_retains_another_finds_until_an_empty_message_removes_it(
    tmp_path: Path, count: int
) -> None:
    async with (
        running_stores(tmp_path, count) as nodes,
        gateway_of(nodes) as one,
        gateway_of(nodes) as two,
    ):
        writer, reader = Far(one), Far(two)
        for name in NAMES:
            assert not (await tell(writer, name, b"old", retain=True)).failures
            await tell(writer, name, name.encode(), retain=True)
        assert await retained(reader, "a/+") == [(name, name.encode()) for name in NAMES]
        assert await retained(reader, "a/3") == [("a/3", b"a/3")]
        await tell(reader, "a/3", b"", retain=True)
        assert await retained(writer, "a/3") == []
        with pytest.raises(KernelError) as caught:
            await two.tree.retained(DEFAULT_TENANT, "#", len(NAMES) - 2)
        assert caught.value.code is Code.LIMIT_EXCEEDED


async def test_retained_messages_come_in_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        gateway = Far(client)
        monkeypatch.setattr(wire, "PAGE_MESSAGES", 2)
        for name in NAMES:
            await tell(gateway, name, b"x", retain=True)
        assert await retained(gateway, "#") == [(name, b"x") for name in NAMES]


async def test_nothing_is_stored_of_a_message_that_a_tenant_may_not_retain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        gateway = Far(client)
        subscribed = await SubscriberClient.open(gateway, "g", expiry_ms=None)
        await subscribed.subscribe("#")
        monkeypatch.setattr(local_tree, "RETAINED_MAX", 2)
        group_of = partial(client.topology.tree.group_of, DEFAULT_TENANT)
        first, second = [name for name in NAMES if group_of(name) == client.groups[0]][:2]
        assert not (await tell(gateway, first, b"1", retain=True)).failures
        refused = await tell(gateway, second, b"2", retain=True)
        assert [each.code for each in refused.failures.values()] == [Code.LIMIT_EXCEEDED]
        assert not (await tell(gateway, first, b"3", retain=True)).failures
        assert await retained(gateway, "#") == [(first, b"3")]
        assert await gateway.listed(nodes, "#") == [b"1", b"3"]


@ONE_AND_THREE
async def test_a_publish_through_one_gateway_gets_onto_the_lists_made_through_another(
    tmp_path: Path, count: int
) -> None:
    async with (
        running_stores(tmp_path, count) as nodes,
        gateway_of(nodes) as one,
        gateway_of(nodes) as two,
    ):
        subscribing, publishing = Far(one), Far(two)
        assert unlisted(await tell(publishing, "a/0", b"too early")) == [0]
        subscribed = await SubscriberClient.open(subscribing, "g", expiry_ms=None)
        assert subscribed.subscriber.durable
        assert not subscribed.subscriber.resumed
        assert await subscribed.subscribe("a/+")
        assert not await subscribed.subscribe("a/+", options=b"other")
        await subscribed.leave()
        for name in NAMES:
            assert unlisted(await tell(publishing, name, name.encode(), b"more")) == []
        assert unlisted(await tell(publishing, "b", b"no")) == [0]
        kept = await subscribing.listed(nodes, "a/+")
        assert sorted(kept) == sorted([*(name.encode() for name in NAMES), *[b"more"] * 8])

        back = await SubscriberClient.open(publishing, "g", expiry_ms=None)
        assert back.subscriber.resumed
        assert dict(back.subscriber.subscriptions) == {Subscription("a/+"): b"other"}
        assert await back.subscriber.unsubscribe(Subscription("a/+"))
        assert unlisted(await tell(subscribing, "a/0", b"too late")) == [0]


async def test_what_is_published_far_away_is_consumed_near_its_leader(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        gateway = Far(client)
        subscribed = await SubscriberClient.open(gateway, "g", expiry_ms=None)
        await subscribed.subscribe("a/+")
        for name in NAMES:
            await tell(gateway, name, name.encode())
        back = await SubscriberClient.open(Near(nodes[0]), "g", expiry_ms=None, credit=100)
        assert sorted(each.body for each in await back.recorder.wait_for(8)) == [
            name.encode() for name in NAMES
        ]
        await until(lambda: subscribed.lost)


@ONE_AND_THREE
async def test_a_subscriber_that_is_opened_elsewhere_is_lost_and_refused(
    tmp_path: Path, count: int
) -> None:
    async with (
        running_stores(tmp_path, count) as nodes,
        gateway_of(nodes) as one,
        gateway_of(nodes) as two,
    ):
        old = await SubscriberClient.open(Far(one), "g", expiry_ms=None)
        new = await SubscriberClient.open(Far(two), "g", expiry_ms=None)
        assert new.subscriber.epoch > old.subscriber.epoch
        await until(lambda: old.lost)
        with pytest.raises(KernelError) as caught:
            await old.subscribe("a")
        assert caught.value.code is Code.SESSION_FENCED
        await old.leave(will=True)
        assert await new.subscribe("a")
        assert not new.lost


async def test_a_subscriber_lost_while_its_gateway_was_cut_off_is_found_out(
    tmp_path: Path,
) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        gateway = Far(client)
        old = await SubscriberClient.open(gateway, "g", expiry_ms=None)
        other = await SubscriberClient.open(gateway, "h", expiry_ms=None)
        cut(nodes[0])
        new = await SubscriberClient.open(Near(nodes[0]), "g", expiry_ms=None)
        assert new.subscriber.resumed
        await until(lambda: old.lost)
        assert await other.subscribe("a")
        assert not other.lost


def cut(node: Node) -> None:
    """Break the connections of all gateways to a store."""
    for each in list(node.links.acceptor._wires):
        each.abort()


@ONE_AND_THREE
async def test_the_wills_of_a_gateway_that_is_gone_are_published(
    tmp_path: Path, count: int
) -> None:
    async with running_stores(tmp_path, count) as nodes, gateway_of(nodes) as watching:
        for node in nodes:
            node.opened.client.tree.owners.gone_ms = GONE_MS
        watcher = Far(watching)
        reader = await SubscriberClient.open(watcher, "reader", expiry_ms=None)
        await reader.subscribe("last/#")
        async with gateway_of(nodes) as dying:
            gateway = Far(dying)
            names = [f"last/{n}" for n in range(20)]
            for name in names:
                will = will_of(gateway, name, b"gone", retain=True)
                await SubscriberClient.open(gateway, name, expiry_ms=None, will=will)
            assert await retained(watcher, "last/+") == []
        wanted = [(name, b"gone") for name in sorted(names)]
        await eventually(partial(retained, watcher, "last/+"), wanted)
        assert await watcher.listed(nodes, "last/#") == [b"gone"] * len(names)
        assert not reader.lost


async def test_a_gateway_that_comes_back_in_time_keeps_its_subscribers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        owners = nodes[0].opened.client.tree.owners
        gateway = Far(client)
        will = will_of(gateway, "last", b"gone", retain=True)
        subscribed = await SubscriberClient.open(gateway, "g", expiry_ms=None, will=will)
        cut(nodes[0])
        await until(lambda: not owners._here)
        await until(lambda: owners._here)
        with monkeypatch.context() as later:
            later.setattr(
                owners._process, "monotonic_ms", lambda: CLOCK.monotonic_ms() + owners.gone_ms
            )
            owners.each_second()
        assert await retained(gateway, "last") == []
        assert await subscribed.subscribe("a")
        assert not subscribed.lost


async def test_subscribers_outlive_the_leader_of_their_group(tmp_path: Path) -> None:
    async with (
        running_stores(tmp_path, 3) as nodes,
        gateway_of(nodes) as one,
        gateway_of(nodes) as two,
    ):
        gateway, other = Far(one), Far(two)
        subscribed = await SubscriberClient.open(gateway, "g", expiry_ms=None)
        await subscribed.subscribe("a/+")
        home = one.tree._subscribing.home_of(DEFAULT_TENANT, "g")
        await (await leading(nodes, home)).kill()
        await leading(nodes, home)
        assert await subscribed.subscribe("b/#")
        for name in NAMES:
            assert unlisted(await tell(other, name, name.encode())) == []
        assert len(await other.listed(nodes, "a/+")) == len(NAMES)
        assert not subscribed.lost
        new = await SubscriberClient.open(other, "g", expiry_ms=None)
        assert set(new.subscriber.subscriptions) == {Subscription("a/+"), Subscription("b/#")}
        await until(lambda: subscribed.lost)


@ONE_AND_THREE
async def test_a_list_becomes_a_stream_with_its_first_message(tmp_path: Path, count: int) -> None:
    async with running_stores(tmp_path, count) as nodes, gateway_of(nodes) as client:
        gateway = Far(client)
        subscribed = await SubscriberClient.open(gateway, "g", expiry_ms=None, credit=5)
        await subscribed.subscribe("a/+")
        await subscribed.subscribe("b/+")
        waits, streams = client.tree._waits, client.streams
        await asyncio.sleep(0.2)
        assert streams.count == 0
        assert len(waits) == 4

        for node in nodes:
            cut(node)  # whoever leads after this is told again what is waited for
        for name in NAMES:
            await tell(gateway, name, name.encode())
        await until(lambda: len(subscribed.bodies) == 5)
        assert streams.count == 2
        assert len(waits) == 2
        await asyncio.sleep(0.2)
        assert len(subscribed.bodies) == 5
        subscribed.consumer.grant(len(NAMES))
        await until(lambda: len(subscribed.bodies) == len(NAMES))
        assert sorted(subscribed.bodies) == [name.encode() for name in NAMES]
        subscribed.recorder.settle_now(Settlement.ACK, *list(subscribed.recorder.held.values()))
        await until(lambda: not any(part.unconfirmed for part in streams._parts.values()))

        subscribed.consumer.cancel()
        await until(lambda: streams.count == 0)
        assert len(waits) == 0


async def test_a_live_route_hears_what_is_published_in_its_process(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        gateway = Far(client)
        listener = Listener(gateway, "a/+")
        await tell(gateway, "a/1", b"1", b"2")
        assert listener.got == [("a/1", b"1"), ("a/1", b"2")]


async def test_a_share_ends_with_the_gateway_of_its_last_member(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as watching:
        nodes[0].opened.client.tree.owners.gone_ms = GONE_MS
        watcher = Far(watching)
        async with gateway_of(nodes) as dying:
            subscribed = await SubscriberClient.open(Far(dying), "g", clean=True, expiry_ms=0)
            assert not subscribed.subscriber.durable
            await subscribed.subscribe("a/+", share="s")
            assert unlisted(await tell(watcher, "a/1", b"1")) == []

        async def listed() -> bool:
            return not unlisted(await tell(watcher, "a/1", b"2"))

        await eventually(listed, wanted=False)


@pytest.mark.parametrize("method", [wire.CLAIM, wire.RETAINED, wire.WAIT])
async def test_a_garbage_question_closes_the_connection_and_the_tree_goes_on(
    tmp_path: Path, method: int
) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        gateway = Far(client)
        for garbage in (b"\xff" * 40, b"", b"\x93\x01\xa0"):
            channel = client.leaders.channel_to(client.groups[0])
            assert channel is not None
            heard: list[object] = []
            channel.call(method, [garbage], heard.append, 1_000)
            await until(lambda: heard)  # noqa: B023  # awaited in the same turn of the loop
            assert channel.is_closed
            await until(partial(client.leaders.channel_to, client.groups[0]))
        await tell(gateway, "a", b"x", retain=True)
        assert await retained(gateway, "a") == [("a", b"x")]


@pytest.mark.parametrize("method", [wire.OWNER, wire.FORGET, wire.LOST])
async def test_garbage_that_is_told_closes_the_connection_and_the_tree_goes_on(
    tmp_path: Path, method: int
) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        gateway = Far(client)
        channel = client.leaders.channel_to(client.groups[0])
        assert channel is not None
        channel.cast(method, [b"\xff" * 40], control=True)
        await until(lambda: channel.is_closed)
        await until(partial(client.leaders.channel_to, client.groups[0]))
        await tell(gateway, "a", b"x", retain=True)
        assert await retained(gateway, "a") == [("a", b"x")]


@pytest.mark.parametrize("method", [wire.LOST, wire.FILLED, wire.OWNER])
async def test_garbage_from_a_store_closes_the_connection_and_the_gateway_goes_on(
    tmp_path: Path, method: int
) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        gateway = Far(client)
        subscribed = await SubscriberClient.open(gateway, "g", expiry_ms=None)
        before = client.leaders.channel_to(client.groups[0])
        (channel,) = nodes[0].service._sections.of(wire.OWNER)._gateways  # type: ignore[union-attr]
        channel.cast(method, [b"\xff" * 40], control=True)
        assert before is not None
        await until(lambda: before.is_closed)
        await until(partial(client.leaders.channel_to, client.groups[0]))
        assert await subscribed.subscribe("a")
        assert not subscribed.lost


@ONE_AND_THREE
async def test_durable_subscribers_are_listed_by_name_with_what_waits_for_them(
    tmp_path: Path, count: int
) -> None:
    async with running_stores(tmp_path, count) as nodes, gateway_of(nodes) as client:
        gateway = Far(client)
        names = sorted(f"{kind}-{number}" for kind in "ab" for number in range(5))
        for name in names:
            subscriber = await SubscriberClient.open(gateway, name, expiry_ms=60_000)
            await subscriber.subscribe("a/#")
        for name in NAMES:
            await tell(gateway, name, b"x")
        near = [Near(nodes[0]).client.tree] if count == 1 else []
        for tree in (gateway.client.tree, *near):
            found = await tree.subscribers(DEFAULT_TENANT, limit=4)
            assert [each.name for each in found] == names[:4]
            assert all((each.connected, each.subscriptions) == (True, 1) for each in found)
            found = await tree.subscribers(DEFAULT_TENANT, "b-", "b-1", 10)
            assert [each.name for each in found] == ["b-2", "b-3", "b-4"]
            assert await tree.subscribers("nobody") == []
            (subscription,) = await tree.subscriptions(DEFAULT_TENANT, "a-3")
            assert (subscription.pattern, subscription.share) == ("a/#", "")
            assert subscription.waiting == len(NAMES)
            with pytest.raises(KernelError) as error:
                await tree.subscriptions(DEFAULT_TENANT, "a-9")
            assert error.value.code is Code.NOT_FOUND


async def test_a_store_of_an_older_version_is_not_asked_to_list_subscribers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(three_stores, "VERSIONS", (1, wire.LISTING_SINCE - 1))
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        gateway = Far(client)
        await SubscriberClient.open(gateway, "kept", expiry_ms=60_000)
        with pytest.raises(KernelError, match="of a version that does not list") as error:
            await gateway.client.tree.subscribers(DEFAULT_TENANT)
        assert error.value.code is Code.UNAVAILABLE
        await SubscriberClient.open(gateway, "another", expiry_ms=60_000)
