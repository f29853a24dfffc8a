"""Retention by time: what is too old goes, whoever holds it, and the groups' losses are counted."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Sequence

import pytest

from kernel.api.client import LeaseChange, LeaseVerb, PurgeTopic, ReceiveSpec, Settlement
from kernel.api.model import (
    DEFAULT_GROUP,
    DEFAULT_TENANT,
    DeadLetter,
    GroupOptions,
    QueueRef,
    TopicInfo,
    TopicKind,
    TopicOptions,
    TopicStatistics,
)
from kernel.broker.group_state.state import QueueState, TopicState
from kernel.broker.index.features import Feature
from kernel.broker.log_commands.commands import Trim
from kernel.common.errors import Code
from kernel.common.ids import Offset, QueueId, RaftGroup, TopicId, queue_id
from kernel.store.replicas import retention as trimmer
from kernel.store.replicas.retention import LOOK_MS_MAX, Trimmer
from tests.simulator.peer import Draft
from tests.simulator.world import World, simulated

MINUTE = TopicOptions(retention_ms=60_000)
TO_DEAD = GroupOptions(dead_letter=DeadLetter(None, "dead"), attempts_max=1)
BOTH = pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])


def figures(world: World, topic: TopicInfo, group: str = DEFAULT_GROUP) -> TopicStatistics:
    return world.figures(topic, group)


def live_entries(world: World) -> int:
    store = world.opened.store
    return store.transient_log.count + store.journal.statistics().live_entries


async def bodies(world: World, topic: TopicInfo, group: str = DEFAULT_GROUP) -> list[bytes]:
    """What is delivered now, and taken."""
    recorder = world.peer().attach(topic, credit=1_000, group=group)
    await world.settle_down()
    await recorder.ack()
    recorder.cancel()
    return recorder.bodies


@BOTH
@simulated()
async def test_what_is_too_old_goes_for_all_groups_and_each_counts_what_it_had_not_acked(
    world: World, durable: bool
) -> None:
    peer = world.peer()
    options = TopicOptions(durable=durable, retention_ms=60_000)
    groups = {DEFAULT_GROUP: TO_DEAD, "other": GroupOptions()}
    dead = await peer.topic("dead")
    topic = await peer.topic("work", options, groups=groups)
    await peer.publish(topic, b"1", b"2", b"3")
    assert await bodies(world, topic, "other") == [b"1", b"2", b"3"]
    await asyncio.sleep(40)
    await peer.publish(topic, b"4")
    await asyncio.sleep(18)
    assert figures(world, topic).ready == 4
    await asyncio.sleep(4)
    assert (figures(world, topic).ready, figures(world, topic).expired) == (1, 3)
    assert (figures(world, topic, "other").ready, figures(world, topic, "other").expired) == (1, 0)
    assert figures(world, dead).ready == 0
    await asyncio.sleep(40)
    assert (figures(world, topic).expired, figures(world, topic, "other").expired) == (4, 1)
    assert live_entries(world) == 0
    await peer.publish(topic, b"5")
    assert await bodies(world, topic) == [b"5"]


@pytest.mark.parametrize("crash", [True, False], ids=["crash", "restart"])
@simulated()
async def test_age_counts_through_a_restart_and_so_does_what_expired(
    world: World, crash: bool
) -> None:
    peer = world.peer()
    topic = await peer.topic("work", MINUTE)
    await peer.publish(topic, b"old")
    await asyncio.sleep(62)
    await peer.publish(topic, b"middle")
    await asyncio.sleep(59)
    await peer.publish(topic, b"young")
    await (world.crash() if crash else world.restart())
    assert figures(world, topic).expired == 1
    await asyncio.sleep(3)
    assert (figures(world, topic).ready, figures(world, topic).expired) == (1, 2)
    await asyncio.sleep(12)  # a checkpoint comes, so that nothing of it is replayed
    await (world.crash() if crash else world.restart())
    assert figures(world, topic).expired == 2
    assert await bodies(world, topic) == [b"young"]


@simulated()
async def test_after_a_long_pause_nothing_that_is_too_old_is_delivered(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work", MINUTE)
    await peer.publish(topic, b"old")
    await world.stop()
    await asyncio.sleep(100)
    await world.start()
    await world.settle_down()
    assert await bodies(world, topic) == []
    assert live_entries(world) == 0


@BOTH
@simulated()
async def test_what_a_session_holds_goes_too_and_no_settlement_brings_it_back(
    world: World, durable: bool
) -> None:
    peer = world.peer()
    dead = await peer.topic("dead")
    options = TopicOptions(durable=durable, retention_ms=60_000, priority_max=1)
    topic = await peer.topic("work", options, TO_DEAD)
    await peer.publish(topic, *[Draft(b"%d" % n, priority=n % 2) for n in range(5)])
    recorder = peer.attach(topic, credit=5)
    await recorder.wait_for(5)
    held = list(recorder.held.values())
    await asyncio.sleep(62)
    assert figures(world, topic).expired == 5
    assert live_entries(world) == 0
    for how, delivery in zip(
        (Settlement.ACK, Settlement.RELEASE, Settlement.RETURN, Settlement.DEAD_LETTER),
        held,
        strict=False,
    ):
        assert await recorder.settle(how, delivery) == {}
    peer.close()
    await world.settle_down()
    now = figures(world, topic)
    assert (now.ready, now.leased, now.expired) == (0, 0, 5)
    assert figures(world, dead).ready == 0
    await world.peer().publish(topic, b"new")
    assert await bodies(world, topic) == [b"new"]


@simulated()
async def test_a_timed_lease_ends_with_its_message(world: World) -> None:
    peer = world.peer()
    dead = await peer.topic("dead")
    topic = await peer.topic("work", MINUTE, TO_DEAD)
    await peer.publish(topic, b"held", b"given back", b"delayed again")
    spec = ReceiveSpec(topic, DEFAULT_GROUP, messages=3, lease_ms=50_000)
    tokens = (await world.client.receive(spec)).tokens
    back = LeaseChange(tokens[1], LeaseVerb.RETURN, 70_000)
    assert await world.client.settle_leases(topic, DEFAULT_GROUP, [back]) == [None]
    more = LeaseChange(tokens[0], LeaseVerb.EXTEND, 70_000)
    assert await world.client.settle_leases(topic, DEFAULT_GROUP, [more]) == [None]
    assert (figures(world, topic).leased, figures(world, topic).delayed) == (2, 1)
    await asyncio.sleep(40)
    more = LeaseChange(tokens[2], LeaseVerb.EXTEND, 70_000)
    assert await world.client.settle_leases(topic, DEFAULT_GROUP, [more]) == [None]
    await asyncio.sleep(22)
    now = figures(world, topic)
    assert (now.ready, now.leased, now.delayed, now.expired) == (0, 0, 0, 3)
    assert live_entries(world) == 0
    for verb in (LeaseVerb.ACK, LeaseVerb.EXTEND, LeaseVerb.RELEASE):
        (error,) = await world.client.settle_leases(
            topic, DEFAULT_GROUP, [LeaseChange(tokens[0], verb, 1_000)]
        )
        assert error is not None
        assert error.code is Code.LEASE_LOST
    await asyncio.sleep(50)
    assert (figures(world, topic).ready, figures(world, dead).ready) == (0, 0)


@simulated()
async def test_a_lease_that_ends_in_the_moment_of_expiry_makes_nothing_ready(world: World) -> None:
    """Its RELEASE and the TRIM may be applied in one turn."""
    peer = world.peer()
    topic = await peer.topic("work", TopicOptions(retention_ms=60_000, priority_max=2))
    replica = world.opened.store.replica(topic.queues[0].group)
    await peer.publish(topic, *[Draft(b"%d" % n, priority=n % 3) for n in range(300)])
    spec = ReceiveSpec(topic, DEFAULT_GROUP, messages=300, lease_ms=30_000)
    tokens = (await world.client.receive(spec)).tokens
    changes = [LeaseChange(each, LeaseVerb.RELEASE) for each in tokens]
    giving = asyncio.ensure_future(world.client.settle_leases(topic, DEFAULT_GROUP, changes))
    await asyncio.sleep(0)
    replica.propose(Trim(topic.queues[0].id, Offset(300)), (0, 0, 0), None)
    await giving
    await world.settle_down()
    assert (figures(world, topic).ready, figures(world, topic).expired) == (0, 300)
    await peer.publish(topic, b"new")
    assert await bodies(world, topic) == [b"new"]


@simulated()
async def test_a_delayed_message_is_as_old_as_its_send(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work", MINUTE)
    await peer.publish(topic, Draft(b"never due", delay_ms=90_000), Draft(b"due", delay_ms=20_000))
    await asyncio.sleep(30)
    assert (figures(world, topic).ready, figures(world, topic).delayed) == (1, 1)
    await asyncio.sleep(32)
    now = figures(world, topic)
    assert (now.ready, now.delayed, now.expired) == (0, 0, 2)
    recorder = world.peer().attach(topic, credit=5)
    await asyncio.sleep(50)
    assert recorder.got == []


@simulated()
async def test_on_a_stream_the_time_of_a_delayed_message_begins_when_it_is_due(
    world: World,
) -> None:
    """There a delay may be longer than the retention: the message must not go before it came."""
    peer = world.peer()
    options = TopicOptions(kind=TopicKind.STREAM, retention_ms=60_000)
    topic = await peer.topic("events", options, GroupOptions())
    await peer.publish(topic, b"plain", Draft(b"delayed", delay_ms=90_000), b"behind")
    await asyncio.sleep(62)
    assert (figures(world, topic).expired, figures(world, topic).delayed) == (1, 1)
    await world.crash()
    await asyncio.sleep(25)
    recorder = world.peer().attach(topic, credit=5)
    await recorder.wait_for(2)
    assert recorder.bodies == [b"behind", b"delayed"]
    await asyncio.sleep(62)
    assert live_entries(world) == 0


@simulated()
async def test_an_ordering_key_is_free_when_what_held_it_is_gone(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work", MINUTE, GroupOptions(ordered=True))
    await peer.publish(topic, Draft(b"1", key=b"k"), Draft(b"2", key=b"k"))
    holder = peer.attach(topic, credit=1)
    await holder.wait_for(1)
    other = world.peer().attach(topic, credit=5)
    await asyncio.sleep(30)
    await peer.publish(topic, Draft(b"3", key=b"k"))
    await asyncio.sleep(10)
    assert other.got == []
    await other.wait_for(1, seconds=25)
    assert other.bodies == [b"3"]
    assert figures(world, topic).expired == 2


@simulated()
async def test_what_is_gone_makes_room_in_flight(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work", MINUTE, GroupOptions(in_flight_max=1))
    await peer.publish(topic, b"1")
    spec = ReceiveSpec(topic, DEFAULT_GROUP, lease_ms=3_600_000)
    await world.client.receive(spec)
    await asyncio.sleep(30)
    await peer.publish(topic, b"2")
    recorder = peer.attach(topic, credit=5)
    await asyncio.sleep(20)
    assert recorder.got == []
    await recorder.wait_for(1, seconds=12)
    assert recorder.bodies == [b"2"]


@simulated()
async def test_a_dead_letter_is_as_old_as_its_first_send(world: World) -> None:
    peer = world.peer()
    dead = await peer.topic("dead", TopicOptions(retention_ms=100_000))
    topic = await peer.topic("work", MINUTE, TO_DEAD)
    await peer.publish(topic, b"1")
    recorder = peer.attach(topic, credit=5)
    await recorder.wait_for(1)
    await asyncio.sleep(50)
    await recorder.settle(Settlement.DEAD_LETTER, 0)
    await asyncio.sleep(48)
    assert figures(world, dead).ready == 1
    await world.crash()
    await asyncio.sleep(4)
    assert (figures(world, dead).ready, figures(world, dead).expired) == (0, 1)


@simulated()
async def test_a_dead_letter_that_waited_in_the_outbox_is_as_old_as_its_first_send(
    world: World,
) -> None:
    peer = world.peer()
    topic = await peer.topic("work", None, GroupOptions(dead_letter=DeadLetter(None, "dead")))
    await peer.publish(topic, b"1")
    recorder = peer.attach(topic, credit=5)
    await recorder.wait_for(1)
    await recorder.settle(Settlement.DEAD_LETTER, 0)
    await asyncio.sleep(50)
    await world.restart()
    dead = await world.peer().topic("dead", MINUTE)
    await world.settle_down()
    assert figures(world, dead).ready == 1
    await asyncio.sleep(11 + LOOK_MS_MAX / 1_000 / 60)
    assert figures(world, dead).expired == 1


@simulated()
async def test_the_time_of_a_dead_letter_of_an_ordered_group_begins_anew(world: World) -> None:
    peer = world.peer()
    dead = await peer.topic("dead", MINUTE)
    ordered = GroupOptions(dead_letter=DeadLetter(None, "dead"), ordered=True)
    topic = await peer.topic("work", MINUTE, ordered)
    await peer.publish(topic, Draft(b"1", key=b"k"))
    recorder = peer.attach(topic, credit=5)
    await recorder.wait_for(1)
    await asyncio.sleep(50)
    await recorder.settle(Settlement.DEAD_LETTER, 0)
    await asyncio.sleep(58)
    assert figures(world, dead).ready == 1
    await asyncio.sleep(4)
    assert figures(world, dead).expired == 1


@simulated()
async def test_dead_letters_go_in_their_order_at_the_latest_after_the_retention_of_their_queue(
    world: World,
) -> None:
    peer = world.peer()
    dead = await peer.topic("dead", MINUTE)
    topic = await peer.topic("work", None, TO_DEAD)
    await peer.publish(topic, b"old")
    recorder = peer.attach(topic, credit=5)
    await asyncio.sleep(30)
    await peer.publish(topic, b"young")
    await recorder.wait_for(2)
    await recorder.settle(Settlement.DEAD_LETTER, 1)
    await world.settle_down()
    await recorder.settle(Settlement.DEAD_LETTER, 0)
    await asyncio.sleep(40)
    assert figures(world, dead).ready == 2
    await asyncio.sleep(22)
    assert figures(world, dead).expired == 2


@simulated()
async def test_a_changed_retention_counts_at_once(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work", TopicOptions(retention_ms=345_600_000))
    await peer.publish(topic, b"1")
    await asyncio.sleep(70)
    await peer.topic("work", TopicOptions(retention_ms=None))
    await asyncio.sleep(3)
    assert figures(world, topic).ready == 1
    await peer.topic("work", MINUTE)
    await asyncio.sleep(2)
    assert (figures(world, topic).ready, figures(world, topic).expired) == (0, 1)


@simulated()
async def test_a_long_backlog_goes_in_several_commands(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trimmer, "TRIM_COUNT_MAX", 100)
    peer = world.peer()
    topic = await peer.topic("work", MINUTE)
    await peer.publish(topic, *[b"%d" % n for n in range(1_000)])
    recorder = peer.attach(topic, credit=700)
    await recorder.wait_for(700)
    await recorder.ack(*[each for each in recorder.got if each.offset % 2])
    before = world.opened.store.replica(topic.queues[0].group).state.applied
    await asyncio.sleep(62)
    after = world.opened.store.replica(topic.queues[0].group).state.applied
    assert (figures(world, topic).ready, figures(world, topic).expired) == (0, 650)
    assert 10 <= after - before <= 12
    assert live_entries(world) == 0


@simulated()
async def test_a_purged_message_is_not_counted_as_expired(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work", MINUTE)
    await peer.publish(topic, b"1", b"2")
    await world.client.administer(PurgeTopic(DEFAULT_TENANT, "work", DEFAULT_GROUP))
    await asyncio.sleep(62)
    assert figures(world, topic).expired == 0


@simulated()
async def test_a_group_of_a_stream_counts_what_it_lost(world: World) -> None:
    peer = world.peer()
    options = TopicOptions(kind=TopicKind.STREAM, retention_ms=60_000)
    topic = await peer.topic("events", options, GroupOptions())
    await peer.publish(topic, b"1", b"2")
    recorder = peer.attach(topic, credit=1)
    await recorder.wait_for(1)
    await recorder.ack()
    held = world.peer().attach(topic, credit=1)
    await held.wait_for(1)
    await asyncio.sleep(62)
    assert figures(world, topic).expired == 1
    await held.settle(Settlement.RETURN, 1)  # it must not come back
    assert figures(world, topic).ready == 0


@simulated()
async def test_what_a_ttl_takes_counts_as_expired_if_it_has_nowhere_to_go(world: World) -> None:
    peer = world.peer()
    dead = await peer.topic("dead")
    lost = await peer.topic("lost")
    kept = await peer.topic("kept", None, TO_DEAD)
    for topic in (lost, kept):
        await peer.publish(topic, Draft(b"brief", ttl_ms=1_000))
    await asyncio.sleep(2)
    assert (figures(world, lost).expired, figures(world, kept).expired) == (1, 0)
    assert figures(world, dead).ready == 1


# --- When a queue is looked at ------------------------------------------------------------------


class Looks:
    """A trimmer over one queue, and what it proposed."""

    def __init__(self, options: TopicOptions) -> None:
        self.now_ms = 1_000_000
        ident = queue_id(TopicId(1), 0)
        topic = TopicState(
            TopicId(1),
            DEFAULT_TENANT,
            "work",
            1,
            options,
            (QueueRef(ident, RaftGroup(1)),),
            {DEFAULT_GROUP: GroupOptions()},
        )
        self.queue = QueueState(ident, topic)
        self.queues = {ident: self.queue}
        self.asked: list[Trim] = []
        self.trimmer = Trimmer(
            self.queues.get, lambda: self.now_ms, lambda trim, _: self.asked.append(trim)
        )
        self.trimmer.watch(ident, options)

    def next_looks(self, count: int) -> Sequence[int]:
        """After how many ms the queue is looked at next, so many times."""
        found = []
        for _ in range(count):
            self.trimmer.look()
            (due_ms,) = self.trimmer._due_ms.values()
            found.append(due_ms - self.now_ms)
            self.now_ms = due_ms
        return found


def test_a_queue_is_looked_at_when_its_oldest_message_is_due() -> None:
    looks = Looks(TopicOptions(retention_ms=20_000))
    assert looks.next_looks(2) == [20_001, 20_001]
    looks.queue.index.append(5, 0, 3, looks.now_ms - 15_000)
    assert looks.next_looks(1) == [5_001]
    looks.trimmer.look()
    assert looks.asked == [Trim(looks.queue.id, Offset(3))]


def test_a_queue_with_a_dead_letter_in_it_is_looked_at_once_a_minute() -> None:
    looks = Looks(TopicOptions(retention_ms=345_600_000))
    assert looks.next_looks(1) == [345_600_001]
    looks.queue.index.append_with(5, 0, 1, looks.now_ms, {Feature.AGE: array("I", [7])})
    looks.trimmer.watch(looks.queue.id, looks.queue.topic.options)
    assert looks.next_looks(4)[1:] == [LOOK_MS_MAX] * 3
    assert len(looks.trimmer._due_ms) == 1


def test_a_queue_without_a_limit_or_that_is_gone_is_not_looked_at() -> None:
    looks = Looks(TopicOptions(retention_ms=None))
    looks.trimmer.look()
    assert (looks.asked, looks.trimmer._due_ms) == ([], {})
    looks = Looks(TopicOptions(retention_ms=20_000))
    looks.queue.index.append(5, 0, 3, 1)
    looks.trimmer.forget(QueueId(looks.queue.id))
    looks.trimmer.look()
    assert looks.asked == []


def test_one_turn_looks_at_so_many_queues_and_the_next_at_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trimmer, "LOOKS_MAX", 2)
    looks = Looks(TopicOptions(retention_ms=20_000))
    for number in range(1, 5):
        queue = QueueState(queue_id(TopicId(1), number), looks.queue.topic)
        queue.index.append(5, 0, 3, 1)
        looks.queues[queue.id] = queue
        looks.trimmer.watch(queue.id, queue.topic.options)
    seen = []
    for _ in range(3):
        looks.trimmer.look()
        seen.append(len(looks.asked))
    assert seen == [1, 3, 4]
