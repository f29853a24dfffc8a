"""Names over gateways: one owner of a transient topic, the newest connection of a client."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from kernel.api.client import DeleteTopic, PurgeTopic, PutRouter
from kernel.api.model import DEFAULT_GROUP, DEFAULT_TENANT, RouterOptions, TopicInfo, TopicOptions
from kernel.api.tree import Subscriber, SubscriberSpec, Subscription
from kernel.common.errors import Code, KernelError
from kernel.common.ids import RaftGroup
from kernel.common.placement import home_group
from kernel.remote.client import ClusterClient
from kernel.remote.mesh import mesh_wire as wire
from kernel.remote.mesh.mesh_service import MeshService
from kernel.remote.mesh.name_registry import NameRegistry
from kernel.subscribers.subscribing import home_of_client
from tests.kernel.remote.cluster import (
    Pair,
    lose,
    meeting_gateway_of,
)
from tests.kernel.remote.local import peer_of
from tests.kernel.three_stores import Node, leader_of, until

TRANSIENT = TopicOptions(durable=False)


async def made(client: ClusterClient, name: str, options: TopicOptions = TRANSIENT) -> object:
    """What comes of making a new topic."""
    try:
        return await peer_of(client).topic(name, options, must_be_new=True)
    except KernelError as error:
        return error


async def test_of_two_that_make_a_name_at_once_one_has_it(pair: Pair) -> None:
    _, one, other = pair
    for number in range(10):
        name = f"v{number}"
        results = await asyncio.gather(made(one, name), made(other, name))
        assert sum(isinstance(each, TopicInfo) for each in results) == 1
        (error,) = (each for each in results if isinstance(each, KernelError))
        assert error.code is Code.ALREADY_EXISTS
        here = len([each for each in one.transient.replica.state.topic_names if each[1] == name])
        there = len([each for each in other.transient.replica.state.topic_names if each[1] == name])
        assert here + there == 1
        assert one.topic(DEFAULT_TENANT, name) is not None
        assert other.topic(DEFAULT_TENANT, name) is not None


async def test_a_transient_and_a_durable_topic_of_one_name_do_not_both_come_to_be(
    pair: Pair,
) -> None:
    nodes, one, other = pair
    for number in range(10):
        name = f"v{number}"
        both = made(one, name), made(other, name, TopicOptions())
        results = await asyncio.gather(*both)
        assert sum(isinstance(each, TopicInfo) for each in results) == 1, results
    assert await made(one, "d", TopicOptions())
    error = await made(other, "d")
    assert isinstance(error, KernelError)
    assert error.code is Code.ALREADY_EXISTS
    assert not nodes[0].service.figures.over_questions


async def test_an_exclusive_topic_is_locked_at_all_gateways(two: Pair) -> None:
    _, one, other = two
    peer = peer_of(one)
    topic = await peer.topic("v", TopicOptions(durable=False, owner=peer.session.id))
    known = other.topic(DEFAULT_TENANT, "v")
    assert known is not None
    assert known.options.owner == peer.session.id  # by which adapters refuse it
    stranger = peer_of(other)
    assert stranger.session.id != peer.session.id
    for change in (
        DeleteTopic(DEFAULT_TENANT, "v"),
        PurgeTopic(DEFAULT_TENANT, "v", DEFAULT_GROUP),
    ):
        with pytest.raises(KernelError) as caught:
            await other.administer(change)
        assert caught.value.code is Code.LOCKED
    with pytest.raises(KernelError) as caught:
        await stranger.topic("v", TopicOptions(durable=False, owner=stranger.session.id))
    assert caught.value.code is Code.LOCKED
    peer.session.close()
    await until(lambda: other.topic(DEFAULT_TENANT, "v") is None)
    assert await stranger.topic("v", TRANSIENT) != topic


async def test_the_name_of_a_gateway_that_is_killed_is_free_soon(pair: Pair) -> None:
    _, one, other = pair
    await peer_of(one).topic("v", TRANSIENT)
    await lose(one)
    await until(lambda: other.topic(DEFAULT_TENANT, "v") is None)
    assert isinstance(await made(other, "v"), TopicInfo)


async def test_a_name_of_a_gateway_that_is_killed_may_be_that_of_something_durable(
    pair: Pair,
) -> None:
    _, one, other = pair
    await peer_of(one).topic("v", TRANSIENT)
    error = await made(other, "v", TopicOptions())
    assert isinstance(error, KernelError)
    await lose(one)
    await until(lambda: other.topic(DEFAULT_TENANT, "v") is None)
    topic = await made(other, "v", TopicOptions())
    assert isinstance(topic, TopicInfo)
    assert topic.options.durable
    assert not (await peer_of(other).publish(topic, b"x")).failures


async def test_a_new_leader_knows_whose_a_name_is(three: Pair) -> None:
    nodes, one, other = three
    await peer_of(one).topic("v", TRANSIENT)
    group = home_group(one.groups, DEFAULT_TENANT, "v")
    await hand_over(nodes, group)
    await until(lambda: other.leaders.channel_to(group))
    other.topology.remove_topic(
        other.topology.topics[DEFAULT_TENANT, "v"]
    )  # as if it had not heard
    error = await made(other, "v")
    assert isinstance(error, KernelError)
    assert error.code is Code.ALREADY_EXISTS


async def test_a_name_that_was_taken_meanwhile_is_given_up(three: Pair) -> None:
    """Two gateways have announced one name, as it may be after a change of leader: the later one
    gives it up.
    """
    _, one, other = three
    reserve, other.local.reserve = other.local.reserve, None
    await peer_of(one).topic("v", TRANSIENT)
    known = other.topology.topics[DEFAULT_TENANT, "v"]
    other.topology.remove_topic(known)
    await peer_of(other).topic("v", TRANSIENT)
    await until(lambda: not other.transient.replica.state.topic_names)
    await until(lambda: other.topic(DEFAULT_TENANT, "v") == known)
    assert one.transient.replica.state.topic_names
    assert reserve is not None


async def test_a_router_has_one_owner(two: Pair) -> None:
    _, one, other = two
    options = RouterOptions(durable=False)
    puts = [
        each.administer(PutRouter(DEFAULT_TENANT, "r", options, must_be_new=True))
        for each in (one, other)
    ]
    results = await asyncio.gather(*puts, return_exceptions=True)
    assert len([each for each in results if isinstance(each, KernelError)]) == 1


async def hand_over(nodes: list[Node], group: RaftGroup) -> None:
    """Have another store lead a group."""
    leader = leader_of(nodes, group)
    assert leader is not None
    target = next(each for each in nodes if each is not leader)
    leader.opened.store.consensus.transfer(group, target.number)
    await until(lambda: target.serves(group))


def registry_of(node: Node) -> NameRegistry:
    service = node.service._sections.of(wire.NAME)
    assert isinstance(service, MeshService)
    return service.names


class Connection:
    """A client's connection, as an adapter has it."""

    def __init__(self) -> None:
        self.lost = 0

    def taken_over(self, subscriber: Subscriber) -> None:
        self.lost += 1


def clean(name: str) -> SubscriberSpec:
    return SubscriberSpec(DEFAULT_TENANT, name, clean=True, expiry_ms=0, will=None)


def kept(name: str) -> SubscriberSpec:
    return SubscriberSpec(DEFAULT_TENANT, name, clean=False, expiry_ms=60_000, will=None)


@pytest.mark.parametrize("first", [clean, kept])
@pytest.mark.parametrize("second", [clean, kept])
async def test_a_client_that_connects_elsewhere_is_told_before_it_is_answered(
    two: Pair, first: object, second: object
) -> None:
    _, one, other = two
    before, after = Connection(), Connection()
    old = await one.tree.open(first("c"), before)  # type: ignore[operator]
    await other.tree.open(second("c"), after)  # type: ignore[operator]
    if old.durable:
        await until(lambda: before.lost)
    assert (before.lost, after.lost) == (1, 0)
    again = Connection()
    await one.tree.open(clean("c"), again)
    await until(lambda: after.lost)
    assert again.lost == 0


async def test_a_clean_client_is_told_across_a_change_of_leader(three: Pair) -> None:
    nodes, one, other = three
    before = Connection()
    await one.tree.open(clean("c"), before)
    group = home_of_client(one.groups, DEFAULT_TENANT, "c")
    await hand_over(nodes, group)
    await until(lambda: one.mesh.names._claiming.is_over and one.leaders.channel_to(group))
    after = Connection()
    await other.tree.open(clean("c"), after)
    await until(lambda: before.lost)
    assert (before.lost, after.lost) == (1, 0)


async def test_a_client_that_has_left_is_forgotten(two: Pair) -> None:
    nodes, one, other = two
    registry = registry_of(nodes[0])
    one_subscriber = await one.tree.open(clean("c"), Connection())
    assert sum(len(clients) for _, clients in registry._clients.values()) == 1
    again = await one.tree.open(clean("c"), Connection())
    assert one_subscriber is not again
    await again.close(will=False)
    await until(lambda: sum(len(clients) for _, clients in registry._clients.values()) == 0)
    await other.tree.open(clean("c"), Connection())
    assert registry.figures.taken_over == 0


async def test_a_gateway_that_does_not_answer_is_not_waited_for_long(two: Pair) -> None:
    nodes, one, other = two
    await one.tree.open(clean("c"), Connection())
    one.mesh.names.taken = lambda payload, reply: None  # type: ignore[method-assign]
    await asyncio.wait_for(other.tree.open(clean("c"), Connection()), 5)
    registry = registry_of(nodes[0])
    assert registry.figures.unheard == 1


async def test_of_many_that_connect_with_one_name_one_stays(two: Pair) -> None:
    nodes, one, other = two
    async with meeting_gateway_of(nodes) as third:
        gateways = (one, other, third)
        connections = [Connection() for _ in range(30)]
        opens = [
            gateways[number % 3].tree.open(clean("c"), each)
            for number, each in enumerate(connections)
        ]
        results = await asyncio.gather(*opens, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                assert isinstance(result, KernelError)
                assert result.code is Code.SESSION_FENCED
        held = [each for each in gateways if (DEFAULT_TENANT, "c") in each.tree._subscribing._open]
        assert len(held) == 1


def of(user: str, name: str, *, kept: bool = False) -> SubscriberSpec:
    return SubscriberSpec(DEFAULT_TENANT, name, not kept, 60_000 if kept else 0, None, user)


@pytest.mark.parametrize("first_kept", [False, True])
@pytest.mark.parametrize("second_kept", [False, True])
async def test_another_users_client_elsewhere_is_refused_and_the_first_one_hears_nothing(
    two: Pair, first_kept: bool, second_kept: bool
) -> None:
    nodes, one, other = two
    before, after = Connection(), Connection()
    await one.tree.open(of("ann", "c", kept=first_kept), before)
    with pytest.raises(KernelError) as error:
        await other.tree.open(of("bob", "c", kept=second_kept), after)
    assert error.value.code is Code.NOT_ALLOWED
    again = Connection()
    await other.tree.open(of("ann", "c", kept=second_kept), again)
    await until(lambda: before.lost)
    assert (before.lost, after.lost, again.lost) == (1, 0, 0)
    assert registry_of(nodes[0]).figures.refused == 1


async def test_of_two_users_the_first_keeps_a_name_that_a_new_leader_did_not_know(
    two: Pair,
) -> None:
    nodes, one, other = two
    before, after = Connection(), Connection()
    await one.tree.open(of("ann", "c"), before)
    group = home_of_client(one.groups, DEFAULT_TENANT, "c")
    registry_of(nodes[0])._clients.clear()  # as a new leader begins
    await other.tree.open(of("bob", "c"), after)
    one.mesh.names._leader_changed(group)
    await until(lambda: after.lost)
    assert before.lost == 0
    assert one.mesh.names.holds(DEFAULT_TENANT, "c")
    with pytest.raises(KernelError):
        await other.tree.open(of("bob", "c"), after)


@pytest.mark.parametrize("kept", [False, True])
async def test_an_administrator_drops_a_client_that_another_gateway_has(
    two: Pair, kept: bool
) -> None:
    _, one, other = two
    connection = Connection()
    await one.tree.open(of("ann", "c", kept=kept), connection)
    assert await other.tree.drop(DEFAULT_TENANT, "c")
    await until(lambda: connection.lost)
    assert not await other.tree.drop(DEFAULT_TENANT, "c")
    await other.tree.open(of("bob", "c"), Connection())


async def test_a_gateway_ends_all_that_a_tenant_has_at_another(two: Pair) -> None:
    _, one, other = two
    connections = [Connection() for _ in range(3)]
    for number, connection in enumerate(connections):
        held = await one.tree.open(of("ann", f"c{number}", kept=True), connection)
        await held.subscribe(Subscription(f"a/{number}"), b"")
    while await other.tree.forget(DEFAULT_TENANT):
        await asyncio.sleep(0)
    await until(lambda: all(each.lost for each in connections))
    assert not (await other.tree.open(of("bob", "c1", kept=True), Connection())).resumed


async def test_what_is_nobodys_is_asked_about_by_a_gateway(two: Pair) -> None:
    _, one, other = two
    old = await one.tree.open(of("", "c", kept=True), Connection())
    await old.subscribe(Subscription("a/+"), b"")
    await old.close(will=False)
    asked: list[object] = []
    spec = msgspec.structs.replace(
        of("bob", "c", kept=True), may_have=lambda each: bool(asked.append(each.subscriptions))
    )
    with pytest.raises(KernelError) as error:
        await other.tree.open(spec, Connection())
    assert error.value.code is Code.NOT_ALLOWED
    assert asked == [{("", "a/+"): b""}]
    spec = msgspec.structs.replace(of("ann", "c", kept=True), may_have=lambda _: True)
    assert (await other.tree.open(spec, Connection())).resumed
