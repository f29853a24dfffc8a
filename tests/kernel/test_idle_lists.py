"""Subscribers that nothing comes for: no dispatcher, two commands, and nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FunctionType, ModuleType

import pytest
from msgspec import structs

from kernel.api.model import GroupOptions, TopicInfo
from kernel.api.tree import Subscription
from kernel.broker.delivery.dispatcher import Dispatcher
from kernel.broker.group_state.state import INDEX_GROUP, INDEX_GROUPS
from kernel.broker.snapshots.snapshot import dump, load
from kernel.broker.snapshots.snapshot_records import TopicRecord, decode, encode
from kernel.common.ids import is_index, topic_of
from kernel.log.format import entry as entries
from kernel.subscribers.local_subscriber import LocalSubscriberConsumer
from tests.kernel.tree_client import SubscriberClient, tell
from tests.simulator.world import World, simulated

LOADS = 16
"""Topics that are written to without a pause: some of them in every group."""

SYNC_S = 0.02
"""A sync of the simulated disk takes no time otherwise."""

UNUSED_MS = 130_000

SUBSCRIBER_BYTES_MAX = 2_500


def dispatchers(world: World) -> list[Dispatcher]:
    """Those of reference lists."""
    return [
        each
        for replica in world.opened.store.replicas()
        for queue in replica.state.queues
        if is_index(topic_of(queue))
        for each in replica.dispatchers_of(queue)
    ]


def commands(world: World, since: dict[int, int] | None = None) -> list[int]:
    """Types of the commands in the log, of entries behind `since`."""
    store = world.opened.store
    found: list[int] = []
    for group, last in store.statistics().applied_index.items():
        for index in range((since or {}).get(group, 0) + 1, last + 1):
            for batch in entries.batches(store.journal.read(group, index)):
                found += [kind for kind, _version, _body in batch.commands]
    return found


@asynccontextmanager
async def under_load(world: World) -> AsyncIterator[None]:
    """Publishes without a pause, so that something always waits for its entry."""
    world.workers.delay_s["weir-journal-writer"] = SYNC_S
    topics = [await world.peer().topic(f"load{number}") for number in range(LOADS)]
    assert {each.queues[0].group for each in topics} == set(world.opened.store.data_groups)

    async def publish(topic: TopicInfo) -> None:
        peer = world.peer()
        while True:
            await asyncio.gather(peer.publish(topic, b"x"), asyncio.sleep(SYNC_S / 2))

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(publish(each)) for each in topics * 2]
        yield
        for each in tasks:
            each.cancel()


@simulated()
async def test_a_connection_and_its_subscription_are_three_commands(world: World) -> None:
    before = dict(world.opened.store.statistics().applied_index)
    subscribed = await SubscriberClient.open(world, "g", credit=10)
    await subscribed.subscribe("own/1")
    await asyncio.sleep(1)

    # The subscriber; the reference list, in the group of its name; the subscription.
    assert len(commands(world, before)) == 3
    assert not dispatchers(world)


@simulated()
async def test_the_first_message_reaches_consumers_that_had_no_dispatcher(world: World) -> None:
    all_subscribed = [
        await SubscriberClient.open(world, f"g{number}", credit=10) for number in range(3)
    ]
    for subscribed in all_subscribed:
        await subscribed.subscribe("a/+")
    await all_subscribed[0].subscribe("a/1")
    await tell(world, "a/2", b"1", b"2")

    for subscribed in all_subscribed:
        assert [each.body for each in await subscribed.recorder.wait_for(2)] == [b"1", b"2"]
        await subscribed.recorder.ack()
    await tell(world, "a/2", b"3")
    for subscribed in all_subscribed:
        assert (await subscribed.recorder.wait_for(3))[2].body == b"3"
    assert len(dispatchers(world)) == 3


@simulated()
async def test_credit_costs_nothing_for_lists_that_bring_nothing(world: World) -> None:
    """A session of ten thousand filters has forty thousand: each grant looked at all of them."""
    subscribed = await SubscriberClient.open(world, "g")
    for number in range(200):
        await subscribed.subscribe(f"idle/{number}")
    await subscribed.subscribe("t")
    await tell(world, "t", b"1", b"2")
    seen = 0

    def looked(_consumer: object) -> list[object]:
        nonlocal seen
        seen += 1
        return []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalSubscriberConsumer, "_each", looked)
        for count in (1, 2):
            subscribed.consumer.grant(1)
            assert len(await subscribed.recorder.wait_for(count)) == count
    assert not seen


@simulated()
async def test_the_first_message_waits_for_credit(world: World) -> None:
    subscribed = await SubscriberClient.open(world, "g")
    await subscribed.subscribe("t")
    await tell(world, "t", b"1")
    await asyncio.sleep(0.1)
    assert subscribed.bodies == []

    subscribed.consumer.grant(1)
    assert [each.body for each in await subscribed.recorder.wait_for(1)] == [b"1"]


@simulated()
async def test_who_has_left_or_unsubscribed_waits_no_more(world: World) -> None:
    staying = await SubscriberClient.open(world, "staying", credit=10)
    leaving = await SubscriberClient.open(world, "leaving", credit=10)
    changing = await SubscriberClient.open(world, "changing", credit=10)
    for subscribed in (staying, leaving, changing):
        await subscribed.subscribe("t")
    await leaving.leave()
    changing.consumer.remove(Subscription("t"))
    await changing.subscriber.unsubscribe(Subscription("t"))
    await tell(world, "t", b"1")

    assert [each.body for each in await staying.recorder.wait_for(1)] == [b"1"]
    assert leaving.bodies == []
    assert changing.bodies == []
    back = await SubscriberClient.open(world, "leaving", credit=10)
    assert [each.body for each in await back.recorder.wait_for(1)] == [b"1"]


@simulated()
async def test_unsubscribing_before_the_consumer_knows_loses_nothing_of_others(
    world: World,
) -> None:
    first = await SubscriberClient.open(world, "first", credit=10)
    other = await SubscriberClient.open(world, "other", credit=10)
    await first.subscribe("t")
    await other.subscribe("t")
    await first.subscriber.unsubscribe(Subscription("t"))
    await tell(world, "t", b"1")

    assert [each.body for each in await other.recorder.wait_for(1)] == [b"1"]
    assert first.bodies == []
    first.consumer.remove(Subscription("t"))


@simulated()
async def test_a_session_that_is_closed_holds_nothing_that_comes_later(world: World) -> None:
    subscribed = await SubscriberClient.open(world, "g", credit=10)
    await subscribed.subscribe("t")
    subscribed.peer.close()
    await tell(world, "t", b"1")
    await asyncio.sleep(0.1)

    assert subscribed.bodies == []
    assert not dispatchers(world)
    back = await SubscriberClient.open(world, "g", credit=10)
    assert [each.body for each in await back.recorder.wait_for(1)] == [b"1"]


@simulated()
async def test_what_was_never_handed_out_is_fresh_after_a_restart(world: World) -> None:
    subscribed = await SubscriberClient.open(world, "g", credit=10)
    await subscribed.subscribe("t")
    await subscribed.leave()
    await world.restart()
    await tell(world, "t", b"1")
    back = await SubscriberClient.open(world, "g", credit=10)

    (delivery,) = await back.recorder.wait_for(1)
    assert delivery.attempt == 1


@simulated()
async def test_dispatchers_of_lists_are_forgotten_under_constant_load(world: World) -> None:
    async with under_load(world):
        for number in range(5):
            subscribed = await SubscriberClient.open(world, f"g{number}", credit=10)
            await subscribed.subscribe("t")
            await tell(world, "t", b"1")
            await subscribed.recorder.wait_for(1)
            await subscribed.recorder.ack()
            await subscribed.leave()
        assert dispatchers(world)
        await asyncio.sleep(3)

        assert not dispatchers(world)
        back = await SubscriberClient.open(world, "g0", credit=10)
        # What came after it had left, and not what it has acked.
        assert len(await back.recorder.wait_for(4)) == 4


@simulated()
async def test_a_dispatcher_whose_consumer_came_back_is_kept(world: World) -> None:
    async with under_load(world):
        subscribed = await SubscriberClient.open(world, "g", credit=1)
        await subscribed.subscribe("t")
        await tell(world, "t", b"1", b"2")
        await subscribed.recorder.wait_for(1)
        subscribed.consumer.cancel()
        await asyncio.sleep(2)
        assert len(dispatchers(world)) == 1, "it still holds a message"

        again = await SubscriberClient.open(world, "g", credit=5)
        assert [each.body for each in await again.recorder.wait_for(1)] == [b"2"]
        await asyncio.sleep(2)

        assert len(dispatchers(world)) == 1
        await subscribed.recorder.ack()
        await again.recorder.ack()


@simulated()
async def test_what_was_only_commands_leaves_the_memory_of_the_log(world: World) -> None:
    journal = world.opened.store.journal
    subscribed = await SubscriberClient.open(world, "g")
    await subscribed.subscribe("t")
    before = journal.statistics().cache_bytes
    for number in range(50):
        await SubscriberClient.open(world, f"g{number}")
    assert journal.statistics().cache_bytes == before

    await tell(world, "t", b"x" * 1_000)
    assert journal.statistics().cache_bytes > before + 1_000


@simulated()
async def test_a_subscription_that_nothing_came_for_is_in_use_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "kernel.broker.group_state.topic_state.INDEX_GROUP", GroupOptions(unused_ms=UNUSED_MS)
    )
    monkeypatch.setattr("kernel.store.leading.group_use.NOTE_MS", UNUSED_MS // 10)
    for name in ("present", "gone"):
        subscribed = await SubscriberClient.open(world, name)
        await subscribed.subscribe("t")
        await subscribed.leave()
    present = await SubscriberClient.open(world, "present")
    await asyncio.sleep(2 * UNUSED_MS / 1_000)
    await present.leave()
    await asyncio.sleep(1)
    await tell(world, "t", b"1")
    await asyncio.sleep(70)

    # One was there until a while ago, though nothing came; the other has not come for too long.
    back = await SubscriberClient.open(world, "present", credit=10)
    assert [each.body for each in await back.recorder.wait_for(1)] == [b"1"]
    late = await SubscriberClient.open(world, "gone", credit=10)
    await asyncio.sleep(1)
    assert late.bodies == []


@simulated()
async def test_deadlines_that_no_longer_hold_do_not_pile_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernel.subscribers.subscriber_keeper.DUE_SLACK", 10)
    for _ in range(200):
        subscribed = await SubscriberClient.open(world, "g", expiry_ms=60_000)
        await subscribed.leave()
    assert world.client.tree._keeper._due_count <= 2 + 10 + 1

    # The last one holds.
    await asyncio.sleep(58)
    subscribed = await SubscriberClient.open(world, "g", expiry_ms=5_000)
    assert subscribed.subscriber.resumed
    await subscribed.leave()
    await asyncio.sleep(8)
    assert not (await SubscriberClient.open(world, "g")).subscriber.resumed


@simulated()
async def test_groups_of_a_list_have_their_options_without_standing_in_it(world: World) -> None:
    for number in range(3):
        subscribed = await SubscriberClient.open(world, f"g{number}")
        await subscribed.subscribe("t")
    (queue,) = [
        queue
        for replica in world.opened.store.replicas()
        for queue in replica.state.queues.values()
        if queue.pending_acks is not None
    ]
    assert len(queue.groups) == 3
    assert not INDEX_GROUPS
    assert [queue.topic.groups[name] for name in queue.groups] == [INDEX_GROUP] * 3

    await world.restart()
    state = world.opened.store.replica(queue.topic.refs[0].group).state
    restored = state.queues[queue.id]
    assert set(restored.groups) == set(queue.groups)
    assert restored.topic.groups is INDEX_GROUPS


@simulated()
async def test_lists_of_older_snapshots_named_their_groups(world: World) -> None:
    subscribed = await SubscriberClient.open(world, "g")
    await subscribed.subscribe("t")
    (state,) = [each.state for each in world.opened.store.replicas() if each.state.indexes]
    records = list(dump(state))
    (at,) = [at for at, each in enumerate(records) if isinstance(decode(each), TopicRecord)]
    record = decode(records[at])
    (group,) = next(iter(state.queues.values())).groups
    older = structs.replace(record, groups={group: GroupOptions()})
    loaded = load([*records[:at], encode(older), *records[at + 1 :]])

    (topic,) = loaded.topics.values()
    assert topic.groups is INDEX_GROUPS
    assert list(dump(loaded)) == records


def size_of(*roots: object) -> int:
    """Bytes of everything that these objects lead to."""
    known = {id(each): each for each in roots}
    waiting = list(roots)
    while waiting:
        for each in gc.get_referents(waiting.pop()):
            if id(each) not in known and not isinstance(each, type | ModuleType | FunctionType):
                known[id(each)] = each
                waiting.append(each)
    return sum(map(sys.getsizeof, known.values()))


@simulated()
async def test_a_subscriber_that_is_away_costs_little_memory(world: World) -> None:
    async def come_and_go(names: range) -> None:
        for number in names:
            subscribed = await SubscriberClient.open(world, f"device-{number}", expiry_ms=3_600_000)
            await subscribed.subscribe(f"devices/{number}/orders", options=b"12345")
            await subscribed.leave()

    def size() -> int:
        states = [each.state for each in world.opened.store.replicas()]
        tables = [*world.client.topology.tree._tables.values()]
        # Results are remembered of so many commands, however many subscribers there are.
        results = size_of(*(each.clients for each in states))
        return size_of(*states, *tables, world.client.tree._keeper._due) - results

    await come_and_go(range(50))
    before = size()
    await come_and_go(range(50, 350))

    each = (size() - before) / 300
    assert each < SUBSCRIBER_BYTES_MAX
