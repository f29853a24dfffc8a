"""What the state machines have counted, on its way into windows and the gateway's meter."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from kernel.api.client import DeleteTopic, LeaseChange, LeaseVerb, PutTopic, ReceiveSpec
from kernel.api.model import DEFAULT_GROUP, DEFAULT_TENANT, TopicOptions
from kernel.api.origins import INTERNAL
from kernel.common.ids import TRANSIENT_GROUP, RaftGroup
from metering.counters import Meter
from metering.schema.record import TEXT_BYTES_MAX
from metering.store_source import SYSTEM_TENANT, StoreSource, protocol_names, short
from metering.window import Window
from tests.kernel.tree_client import SubscriberClient, tell
from tests.metering.samples import START_US
from tests.simulator.peer import Draft, Peer
from tests.simulator.world import World, simulated

NAMES = protocol_names({7: "amqp", 8: "mqtt"}, INTERNAL)
PLAIN = {"mqtt": "qos0"}
TRANSIENT = TopicOptions(durable=False)


def source_of(world: World, meter: Meter | None = None) -> StoreSource:
    return StoreSource(
        world.opened.store.replicas, meter or Meter(START_US), NAMES, plain_classes=PLAIN
    )


def peer_of(world: World, origin: int = 7) -> Peer:
    peer = world.peer()
    peer.session = world.client.open_session("metered", origin)
    return peer


async def told(source: StoreSource) -> dict[tuple[str, str, str], int]:
    """Cumulative messages by (protocol, action, topic) of one observation."""
    windows = await source.windows(START_US, START_US + 10)
    return {
        (key.protocol, key.action, key.topic): values.cum_messages
        for window in windows
        for key, values in window.rows.items()
    }


def counted(meter: Meter) -> dict[tuple[str, str, str], int]:
    """Messages by (protocol, action, topic) in the meter's open window."""
    window = meter.close(START_US + 1) or Window(0, 1, {})
    return {
        (key.protocol, key.action, key.topic): values.messages
        for key, values in window.rows.items()
    }


class Turns:
    """Others have their turn after each topic, and do this."""

    is_over = True

    def __init__(self, *does: Callable[[], Awaitable[object]]) -> None:
        self._does = list(does)
        self.pauses = 0

    async def pause(self) -> None:
        """Their turn."""
        self.pauses += 1
        if self._does:
            await self._does.pop(0)()


@simulated()
async def test_what_happens_while_many_topics_are_looked_at_is_told_once_more(
    world: World,
) -> None:
    peer = peer_of(world)
    topics = {name: await peer.topic(name) for name in ("a", "b", "c", "d")}
    for topic in topics.values():
        await peer.publish(topic, b"1")

    async def publish() -> None:
        for topic in topics.values():
            await peer.publish(topic, b"2", b"3")

    async def delete() -> None:
        await world.client.administer(DeleteTopic(DEFAULT_TENANT, "b"))
        await world.client.administer(DeleteTopic(DEFAULT_TENANT, "c"))

    turns = Turns(publish, delete)
    source = StoreSource(
        world.opened.store.replicas,
        Meter(START_US),
        NAMES,
        plain_classes=PLAIN,
        slices=lambda: turns,
    )
    before = {each.group: each.state.applied for each in world.opened.store.replicas()}
    windows = await source.windows(START_US, START_US + 10)
    rows = [each for window in windows for each in window.rows.items()]
    first = {(key.protocol, key.action, key.topic): values.cum_messages for key, values in rows}
    assert turns.pauses >= len(topics)
    assert {first.get(("amqp", "route", name), 0) for name in topics} == {1, 3}
    # By its index a row is behind what another leader tells that knows less.
    for key, values in rows:
        is_as_of_the_beginning = values.log_index == before[RaftGroup(key.raft_group)]
        assert is_as_of_the_beginning == (values.cum_messages == 1)
    source.reported()
    await asyncio.sleep(1)
    second = await told(source)
    for name in topics:
        key = "amqp", "route", name
        assert second.get(key, first.get(key)) == 3
    source.reported()
    await asyncio.sleep(1)
    assert await told(source) == {}
    assert not any(each.state.ledger.retired for each in world.opened.store.replicas())


@simulated()
async def test_two_who_look_at_once_do_so_one_after_the_other(world: World) -> None:
    peer = peer_of(world)
    for name in ("a", "b"):
        await peer.publish(await peer.topic(name), b"1")
    source = StoreSource(
        world.opened.store.replicas,
        Meter(START_US),
        NAMES,
        slices=lambda: Turns(*[lambda: asyncio.sleep(0.01)] * 5),
    )
    found = await asyncio.gather(told(source), told(source))
    assert [len(each) for each in found] == [4, 0]


@simulated()
async def test_one_who_is_interrupted_leaves_everything_to_the_next(world: World) -> None:
    peer = peer_of(world)
    for name in ("a", "b"):
        await peer.publish(await peer.topic(name), b"1")
    stands = asyncio.Event()
    turns = [Turns(stands.wait), Turns(), Turns()]
    source = StoreSource(
        world.opened.store.replicas, Meter(START_US), NAMES, slices=lambda: turns.pop(0)
    )
    task = asyncio.ensure_future(told(source))
    await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    turns[:] = [Turns() for _ in range(8)]
    rows = await told(source)
    assert {(action, topic) for _, action, topic in rows} == {
        (action, topic) for action in ("publish", "route") for topic in ("a", "b")
    }


@simulated()
async def test_what_was_returned_is_told_beside_what_was_delivered(world: World) -> None:
    peer, meter = peer_of(world), Meter(START_US)
    source = source_of(world, meter)
    for name, options in (("kept", TopicOptions()), ("live", TRANSIENT)):
        topic = await peer.topic(name, options)
        await peer.publish(topic, b"1", b"2")
        spec = ReceiveSpec(topic, DEFAULT_GROUP, messages=2, lease_ms=60_000, origin=7)
        received = await world.client.receive(spec)
        assert received.deliveries is not None
        size = len(received.deliveries.slots[1])
        change = LeaseChange(received.tokens[1], LeaseVerb.RETURN, slot_bytes=size)
        assert await world.client.settle_leases(topic, DEFAULT_GROUP, [change], 7) == [None]
    rows = await told(source)
    assert (rows["amqp", "deliver", "kept"], rows["amqp", "return", "kept"]) == (2, 1)
    source.gather()
    rows = counted(meter)
    assert (rows["amqp", "deliver", "live"], rows["amqp", "return", "live"]) == (2, 1)


@simulated()
async def test_cumulative_rows_are_told_until_they_are_reported(world: World) -> None:
    peer, source = peer_of(world), source_of(world)
    topic = await peer.topic("orders")
    await peer.publish(topic, b"1", b"2")
    both = {("amqp", "route", "orders"): 2, ("amqp", "publish", "orders"): 2}
    assert await told(source) == both
    assert await told(source) == {}, "nothing has grown"
    assert await told(source_of(world)) == both, (
        "as after a crash: nobody has said that it is reported"
    )
    source.reported()
    await world.settle_down()
    assert await told(source_of(world)) == {}
    await peer.publish(topic, b"3")
    assert (await told(source))["amqp", "publish", "orders"] == 3


@simulated()
async def test_the_end_offset_goes_with_the_rows_of_route(world: World) -> None:
    peer, other = peer_of(world), peer_of(world, 9)
    topic = await peer.topic("orders")
    await peer.publish(topic, b"1", b"2")
    await other.publish(topic, b"3")
    source = source_of(world)
    (window,) = await source.windows(START_US, START_US + 10)
    proofs = [
        (key.protocol, values.cum_messages, values.gauge_max)
        for key, values in window.rows.items()
        if key.action == "route"
    ]
    assert sorted(proofs) == [("amqp", 2, 3), ("origin-9", 1, 3)]
    assert source.unnamed == {9}, "so that operators are told"


@simulated()
async def test_what_mqtt_publishes_is_told_apart_by_its_quality_of_service(world: World) -> None:
    peer, mqtt = peer_of(world), peer_of(world, 8)
    topic = await peer.topic("graded")
    halves = world.client.halves
    half = await halves.prepare(topic, "p", Draft(b"half").parts((1, 2), 3))
    await halves.end(topic, half, commit=True)
    for other in (peer, mqtt):
        await other.publish(topic, *(Draft(b"x", flags=flags) for flags in (0, 16, 32, 32)))
    (window,) = await source_of(world).windows(START_US, START_US + 10)
    found = {
        (key.protocol, key.queue_class): values.cum_messages
        for key, values in window.rows.items()
        if key.action == "publish" and key.protocol in {"amqp", "mqtt"}
    }
    assert found == {
        ("amqp", "standard"): 1,
        ("mqtt", "qos0"): 1,
        **{(name, "qos1"): 1 for name in ("amqp", "mqtt")},
        **{(name, "qos2"): 2 for name in ("amqp", "mqtt")},
    }
    classes = {key.queue_class for key in window.rows if key.action == "publish"}
    assert "transaction" in classes


@simulated()
async def test_a_pattern_is_not_taken_for_a_topic_that_is_spelled_alike(world: World) -> None:
    peer = world.peer()
    guest = await SubscriberClient.open(world, "guest")
    names = [f"d{number}" for number in range(12)]
    for name in names:
        await peer.topic(name, TopicOptions(tree=True))
        await guest.subscribe(name)
        await tell(world, name, b"x")
    windows = await source_of(world).windows(START_US, START_US + 10)
    rows = [(key, values) for window in windows for key, values in window.rows.items()]
    routed = {key.topic: values.cum_messages for key, values in rows if key.action == "route"}
    assert routed == {each: 1 for name in names for each in (name, "__tree/" + name)}
    published = sum(values.cum_messages for key, values in rows if key.action == "publish")
    assert published == len(names), "each once, however many places it went to"


@simulated()
async def test_a_deleted_topic_is_told_and_then_forgotten(world: World) -> None:
    peer, source = peer_of(world), source_of(world)
    await peer.publish(await peer.topic("brief"), b"1")
    await peer.client.administer(DeleteTopic(DEFAULT_TENANT, "brief"))
    assert (await told(source))["amqp", "publish", "brief"] == 1
    source.reported()
    await world.settle_down()
    assert not any(each.state.ledger.retired for each in world.opened.store.replicas())
    assert source.forgotten() == 0


@simulated()
async def test_transient_counts_go_into_the_meter_by_what_they_grew(world: World) -> None:
    meter = Meter(START_US)
    peer, source = peer_of(world), source_of(world, meter)
    topic = await peer.topic("memory", TRANSIENT)
    await peer.publish(topic, b"1", b"2")
    source.gather()
    source.gather()
    assert counted(meter) == {("amqp", "publish", "memory"): 2}
    await world.settle_down()
    await peer.publish(topic, b"3")
    await peer.client.administer(DeleteTopic(DEFAULT_TENANT, "memory"))
    source.gather()
    assert counted(meter) == {("amqp", "publish", "memory"): 1}
    await world.settle_down()
    source.gather()
    assert counted(meter) == {}
    assert not world.opened.store.replica(TRANSIENT_GROUP).state.ledger.retired
    assert await told(source) == {}


@simulated()
async def test_the_system_is_not_metered(world: World) -> None:
    peer, source = peer_of(world), source_of(world)
    await peer.client.administer(PutTopic(SYSTEM_TENANT, "own", TopicOptions(), {}))
    topic = peer.client.topic(SYSTEM_TENANT, "own")
    assert topic is not None
    await peer.publish(topic, b"1")
    assert await told(source) == {}


@simulated()
async def test_windows_name_their_raft_group(world: World) -> None:
    peer = peer_of(world)
    for number in range(8):
        await peer.publish(await peer.topic(f"q{number}"), b"1")
    windows = await source_of(world).windows(START_US, START_US + 10)
    groups = {key.raft_group for window in windows for key in window.rows}
    assert len(groups) == len(windows) > 1
    assert all(RaftGroup(each) != TRANSIENT_GROUP for each in groups)


def test_a_name_too_long_for_a_record_stays_one_of_its_own() -> None:
    name = "é" * 300
    assert len(short(name).encode()) <= TEXT_BYTES_MAX
    assert short(name) != short(name + "é")
    assert short("orders") == "orders"
