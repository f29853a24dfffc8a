"""Definitions mirrored into a gateway: from one store and from three, while leaders come and go."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from time import process_time

import pytest

from kernel.api.model import (
    DEFAULT_GROUP,
    DEFAULT_TENANT,
    GroupOptions,
    Match,
    Route,
    RouterOptions,
    TopicInfo,
    TopicOptions,
)
from kernel.broker.log_commands import commands
from kernel.broker.log_commands import tree_commands as tree
from kernel.common.ids import METADATA_GROUP, RaftGroup, TopicId
from kernel.common.placement import home_group
from kernel.remote.client import ClusterClient
from kernel.remote.definitions import feed_service, feed_wire
from kernel.remote.definitions.feed_service import FeedService
from kernel.remote.definitions.mirror import Hears
from kernel.remote.leader_calls.call_wire import WireError
from kernel.requests.proposer import Proposer
from kernel.rpc.channel import Channel
from tests.kernel.remote.cluster import gateway_of, running_stores
from tests.kernel.three_stores import Node, leader_of, until

GROUPS = {DEFAULT_GROUP: GroupOptions()}


class Definer:
    """Puts commands straight to leaders, as an administrator does that is not under test."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._numbers: dict[RaftGroup, int] = {}
        self.propose = Proposer(client.next_identity, client.send_to).propose

    async def topic(self, name: str, options: TopicOptions | None = None) -> TopicInfo:
        home = home_group(self._client.groups, DEFAULT_TENANT, name)
        number = self._numbers[home] = self._numbers.get(home, 0) + 1
        ident = TopicId(home << 32 | number)
        change = commands.PutTopic(
            DEFAULT_TENANT,
            name,
            options or TopicOptions(),
            GROUPS,
            must_be_new=False,
            ident=ident,
            placement=(int(home),),
        )
        info = await self.propose(home, change)
        assert isinstance(info, TopicInfo)
        return info

    async def delete_topic(self, topic: TopicInfo) -> None:
        await self.propose(topic.queues[0].group, commands.DeleteTopic(topic.id))

    def home(self, name: str) -> RaftGroup:
        return home_group(self._client.groups, DEFAULT_TENANT, name)

    async def router(self, name: str, options: RouterOptions) -> None:
        await self.propose(
            self.home(name), commands.PutRouter(DEFAULT_TENANT, name, options, False)
        )

    async def route(self, router: str, route: Route) -> None:
        await self.propose(self.home(router), commands.PutRoute(DEFAULT_TENANT, router, route))


def known(client: ClusterClient) -> dict[str, TopicInfo]:
    return {each.name: each for each in client.topics(DEFAULT_TENANT)}


class Log(Hears):
    """Notes what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[object, ...]] = []

    def topic_changed(self, topic: TopicInfo, *, removed: bool) -> None:
        self.heard.append(("topic", topic.name, removed))

    def subscriber_changed(self, event: feed_wire.SubscriberIs) -> None:
        self.heard.append(("subscriber", event.name, event.epoch, event.ended))

    def mirrored(self, group: int) -> None:
        self.heard.append(("mirrored", group))


def feeds_of(node: Node) -> FeedService:
    section = node.service._sections.of(feed_wire.SUBSCRIBE)
    assert isinstance(section, FeedService)
    return section


@pytest.mark.parametrize("count", [1, 3])
async def test_everything_is_mirrored_at_the_start_and_changes_follow(
    tmp_path: Path, count: int
) -> None:
    async with running_stores(tmp_path, count) as nodes, gateway_of(nodes) as first:
        definer = Definer(first)
        orders = await definer.topic("orders")
        await definer.topic("gone")
        await definer.router("news", RouterOptions(match=Match.EXACT))
        await definer.route("news", Route(topic="orders", key="k"))
        await definer.propose(METADATA_GROUP, commands.PutRecord("user/a", b"1", None))
        list_group = first.topology.tree.groups_of(DEFAULT_TENANT, "a/b")[0]
        await definer.propose(list_group, tree.JoinIndex(DEFAULT_TENANT, "a/b", "s", 0))

        async with gateway_of(nodes) as second:
            log = Log()
            second.definitions.hear(log)
            records: list[tuple[str, tuple[int, bytes] | None]] = []
            second.watch_records(lambda key, record: records.append((key, record)))
            assert second.topic(DEFAULT_TENANT, "orders") == orders
            router = second.router(DEFAULT_TENANT, "news")
            assert router is not None
            assert router.routes == (Route(topic="orders", key="k"),)
            assert second.to_router(DEFAULT_TENANT, "news", "k").count == 1
            assert second.records("user/") == {"user/a": (1, b"1")}
            assert second.topology.tree.indexes_of(DEFAULT_TENANT, "a/b")

            version = second.topology_version
            (gone,) = [each for each in second.topics(DEFAULT_TENANT) if each.name == "gone"]
            kept = second.topic(DEFAULT_TENANT, "orders")
            await definer.delete_topic(gone)
            await definer.propose(
                definer.home("news"),
                commands.DeleteRoute(DEFAULT_TENANT, "news", Route(topic="orders", key="k")),
            )
            await definer.propose(METADATA_GROUP, commands.PutRecord("user/a", None, None))
            await definer.propose(list_group, tree.LeaveIndex(DEFAULT_TENANT, "a/b", "s"))
            opened = tree.OpenSubscriber(DEFAULT_TENANT, "device", True, 0, None)
            await definer.propose(list_group, opened)
            await until(lambda: log.heard.count(("subscriber", "device", 1, False)))
            await until(lambda: second.topic(DEFAULT_TENANT, "gone") is None)
            await until(lambda: not second.to_router(DEFAULT_TENANT, "news", "k").count)
            await until(lambda: records == [("user/a", None)])
            assert not second.records("user/")
            assert not second.topology.tree.indexes_of(DEFAULT_TENANT, "a/b")
            assert second.topology_version > version
            assert second.topic(DEFAULT_TENANT, "orders") is kept
            assert ("topic", "gone", True) in log.heard


async def test_after_a_leader_was_killed_the_mirror_is_as_the_next_one_says(tmp_path: Path) -> None:
    async with running_stores(tmp_path, 3) as nodes, gateway_of(nodes) as client:
        definer = Definer(client)
        topics = [await definer.topic(f"t{number}") for number in range(20)]
        await until(lambda: len(known(client)) == 20)
        before = known(client)
        log = Log()
        client.definitions.hear(log)
        group = topics[0].queues[0].group
        leader = leader_of(nodes, group)
        assert leader is not None
        await leader.kill()
        mine = [each for each in topics if each.queues[0].group == group]
        await definer.delete_topic(mine[0])
        changed = await definer.topic(mine[1].name, TopicOptions(messages_max=5))
        await until(lambda: mine[0].name not in known(client))
        await until(lambda: known(client)[mine[1].name] == changed)
        after = known(client)
        assert len(after) == 19
        same = after.keys() - {mine[1].name}
        assert all(after[name] is before[name] for name in same)
        await until(lambda: ("mirrored", group) in log.heard)
        assert {each[:2] for each in log.heard if each[0] == "topic"} == {
            ("topic", mine[0].name),
            ("topic", mine[1].name),
        }


async def test_a_transfer_ends_a_feed_and_the_next_leader_is_asked(tmp_path: Path) -> None:
    async with running_stores(tmp_path, 3) as nodes, gateway_of(nodes) as client:
        definer = Definer(client)
        group = client.groups[0]
        for _ in range(3):
            await until(lambda: leader_of(nodes, group))
            leader = leader_of(nodes, group)
            assert leader is not None
            to = next(node for node in nodes if node is not leader)
            leader.opened.store.consensus.transfer(group, to.number)
            await until(partial(to.serves, group))
            topic = await definer.topic("moved", TopicOptions(messages_max=to.number))
            await until(partial(_is_known, client, topic))
        assert client.definitions.subscribed >= len(client.groups) + 1 + 3


async def test_a_feed_that_breaks_in_the_middle_of_its_pages_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_service, "PAGE_BYTES", 500)
    monkeypatch.setattr(feed_service, "WINDOW_BYTES", 1_000)
    async with running_stores(tmp_path, 1) as nodes, gateway_of(nodes) as client:
        definer = Definer(client)
        await asyncio.gather(*(definer.topic(f"t{number}") for number in range(200)))
        (node,) = nodes
        broken = 0
        taken = feed_wire.decode_taken

        def cut(payload: bytes) -> feed_wire.Taken:
            nonlocal broken
            broken += 1
            if broken == 10:
                for wire in list(node.links.acceptor._wires):
                    wire.abort()
            return taken(payload)

        monkeypatch.setattr(feed_wire, "decode_taken", cut)
        async with gateway_of(nodes) as second:
            assert broken > 10
            assert known(second) == known(client)
            assert len(known(second)) == 200


async def test_definitions_that_change_while_a_gateway_starts_are_mirrored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_service, "PAGE_BYTES", 2_000)
    async with running_stores(tmp_path, 3) as nodes, gateway_of(nodes) as client:
        definer = Definer(client)
        await asyncio.gather(*(definer.topic(f"t{number}") for number in range(300)))
        await until(lambda: len(known(client)) == 300)

        async def change() -> None:
            for number in range(300):
                if number % 3 == 0:
                    await definer.delete_topic(known(client)[f"t{number}"])
                elif number % 3 == 1:
                    await definer.topic(f"t{number}", TopicOptions(messages_max=number))
                else:
                    await definer.topic(f"u{number}")

        changing = asyncio.create_task(change())
        seconds = 0
        while not changing.done():
            async with gateway_of(nodes) as second:
                seconds += 1
                await asyncio.sleep(0.02)
                if changing.done():
                    await changing
                    await until(lambda: known(second) == truth(nodes))
        assert seconds >= 2
        await until(lambda: known(client) == truth(nodes))


def truth(nodes: list[Node]) -> dict[str, TopicInfo]:
    """Every topic, by the states of the leaders."""
    found: dict[str, TopicInfo] = {}
    for group in (RaftGroup(1), RaftGroup(2)):
        leader = leader_of(nodes, group)
        assert leader is not None
        state = leader.opened.store.replica(group).state
        for (_, name), ident in state.topic_names.items():
            found[name] = state.topics[ident].info()
    return found


async def test_a_gateway_that_takes_nothing_in_is_told_everything_again_when_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_service, "WAITING_BYTES_MAX", 5_000)
    monkeypatch.setattr(feed_service, "WINDOW_BYTES", 1)
    async with running_stores(tmp_path, 1) as nodes, gateway_of(nodes) as client:
        definer = Definer(client)
        feeds = feeds_of(nodes[0])
        group = client.groups[0]
        feed = next(iter(feeds._feeds[group].values()))
        feed.on_way += 1_000_000
        names = [name for name in map(str, range(400)) if definer.home(name) == group]
        await asyncio.gather(*map(definer.topic, names))
        assert feeds.figures.restarted >= 1
        assert feed.waiting_bytes <= 5_000
        assert known(client) == {}
        feed.on_way = 0
        feeds._push(feed)
        await until(lambda: len(known(client)) == len(names))


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x91\x01", b"\x92\xff\xff", b"\x94\1"])
def test_what_is_no_message_of_a_feed_is_refused(payload: bytes) -> None:
    for decode in (
        feed_wire.decode_subscribe,
        feed_wire.decode_taken,
        feed_wire.decode_told,
        feed_wire.decode_ended,
        feed_wire.decode_accepting,
    ):
        with pytest.raises(WireError):
            decode(payload)


async def test_what_is_no_message_of_a_feed_closes_the_connection_and_it_is_opened_again(
    tmp_path: Path,
) -> None:
    async with running_stores(tmp_path, 1) as nodes, gateway_of(nodes) as client:
        definer = Definer(client)
        for method in feed_wire.SUBSCRIBE, feed_wire.TAKEN, feed_wire.TOLD, feed_wire.SUBSCRIBE - 1:
            await until(lambda: client.leaders.channel_to(METADATA_GROUP))
            channel = client.leaders.channel_to(METADATA_GROUP)
            assert channel is not None
            (subscribed,) = nodes[0].service._gateways
            if method == feed_wire.SUBSCRIBE:
                channel.call(method, [b"\xc1"], lambda _: None, 1_000)
            else:
                (channel if method == feed_wire.TAKEN else subscribed).cast(method, [b"\xc1"])
            await until(partial(_are_closed, channel, subscribed))
            topic = await definer.topic(f"t{method}")
            await until(partial(_is_known, client, topic))


def _are_closed(*channels: Channel) -> bool:
    return all(each.is_closed for each in channels)


def _is_known(client: ClusterClient, topic: TopicInfo) -> bool:
    return client.topic(topic.tenant, topic.name) == topic


async def test_while_the_store_of_a_leader_is_full_a_gateway_takes_nothing(tmp_path: Path) -> None:
    async with running_stores(tmp_path, 3) as nodes, gateway_of(nodes) as client:
        assert client.accepting
        await until(lambda: leader_of(nodes, client.groups[0]))
        leader = leader_of(nodes, client.groups[0])
        assert leader is not None
        follower = next((each for each in nodes if not _leads_any(each)), None)
        if follower is not None:
            follower.opened.housekeeper._accept(False)
        leader.opened.housekeeper._accept(False)
        await until(lambda: not client.accepting)
        leader.opened.housekeeper._accept(True)
        await until(lambda: client.accepting)


def _leads_any(node: Node) -> bool:
    return any(node.serves(RaftGroup(group)) for group in range(3))


async def test_ten_thousand_topics_are_mirrored(tmp_path: Path) -> None:
    async with running_stores(tmp_path, 1) as nodes, gateway_of(nodes) as client:
        definer = Definer(client)
        await asyncio.gather(*(definer.topic(f"topic-{number}") for number in range(10_000)))
        began = process_time()
        async with gateway_of(nodes) as second:
            took = process_time() - began
            assert len(known(second)) == 10_000
        assert took < 5
