"""What was served is counted by the state machine: once, and the same after every crash."""

from __future__ import annotations

from collections import defaultdict

import pytest

from kernel.api.client import (
    ConsumerSpec,
    DeleteTopic,
    LeaseChange,
    LeaseVerb,
    PutRoute,
    PutRouter,
    ReceiveSpec,
    Settlement,
)
from kernel.api.message import HEADER_BYTES, Flag
from kernel.api.model import (
    DEFAULT_GROUP,
    DEFAULT_TENANT,
    DeadLetter,
    GroupOptions,
    Match,
    Route,
    RouterOptions,
    TopicKind,
    TopicOptions,
)
from kernel.api.origins import INTERNAL
from kernel.broker.group_state import topic_usage, usage
from kernel.broker.group_state.topic_usage import OTHER_GROUP, TopicUsage
from kernel.broker.group_state.usage import Grade, Verb, counts, units_of
from kernel.broker.log_commands import commands
from kernel.broker.snapshots.snapshot import dump, load, state_hash
from kernel.common.ids import TRANSIENT_GROUP, Offset
from tests.kernel.counted import check_growth, everything
from tests.simulator.peer import Draft, Peer, Recorder
from tests.simulator.world import World, simulated

MINE = 7
Key = tuple[str, str, int]


def peer_of(world: World, origin: int = MINE) -> Peer:
    peer = world.peer()
    peer.session = world.client.open_session("metered", origin)
    return peer


def messages(world: World) -> dict[Key, int]:
    """Messages by topic, verb and origin."""
    found: dict[Key, int] = defaultdict(int)
    for each in everything(world):
        found[each.topic, each.verb.name.lower(), each.origin] += each.messages
    return dict(found)


async def metered(world: World) -> None:
    """Report everything counted until now."""
    for replica in world.opened.store.replicas():
        replica.propose(commands.Metered(replica.state.applied), (0, 0, 0), None)
    await world.settle_down()


@simulated()
async def test_a_message_to_many_queues_is_published_once_and_routed_to_each(world: World) -> None:
    peer = peer_of(world)
    await peer.client.administer(PutRouter(DEFAULT_TENANT, "all", RouterOptions(match=Match.ALL)))
    names = [f"copy{number}" for number in range(12)]
    for name in names:
        options = TopicOptions(durable=name != "copy3")
        await peer.topic(name, options)
        await peer.client.administer(PutRoute(DEFAULT_TENANT, "all", Route(topic=name)))
    to = peer.client.to_router(DEFAULT_TENANT, "all", "")
    await peer.publish(to, *[b"x" * 100] * 5)

    found = messages(world)
    assert sum(found.get((name, "published", MINE), 0) for name in names) == 5
    assert [found[name, "routed", MINE] for name in names] == [5] * 12
    groups = {int(ref.group) for topic in peer.client.topics("default") for ref in topic.queues}
    assert len(groups) > 2, "the copies have to lie in several Raft groups"
    published = [each for each in everything(world) if each.verb is Verb.PUBLISHED]
    assert all(each.topic != "copy3" for each in published), "a durable copy counts"
    assert sum(each.size_bytes for each in published) == 500
    check_growth(world)


@simulated()
async def test_sizes_leave_out_the_fixed_header_and_units_are_counted_by_message(
    world: World,
) -> None:
    peer = peer_of(world)
    topic = await peer.topic("sized")
    sizes = [0, 1, 4_096, 4_097, 8_192, 12_289]
    await peer.publish(topic, *[b"x" * size for size in sizes])
    await peer.publish(topic, Draft(b"x" * 4_000, native=b"n" * 97))

    (routed,) = [each for each in everything(world) if each.verb is Verb.ROUTED]
    assert routed.messages == 7
    assert routed.size_bytes == sum(sizes) + 4_097
    assert routed.units_4k == 1 + 1 + 1 + 2 + 2 + 4 + 2


@simulated()
async def test_ordered_and_delayed_messages_are_told_apart_message_by_message(
    world: World,
) -> None:
    peer = peer_of(world)
    topic = await peer.topic("graded")
    drafts = [Draft(b"1"), Draft(b"2", key=b"k"), Draft(b"3", delay_ms=9), Draft(b"4", ttl_ms=9)]
    await peer.publish(topic, *drafts * 3, Draft(b"5", key=b"k", delay_ms=9))
    graded = {e.grade: e.messages for e in everything(world) if e.verb is Verb.PUBLISHED}
    assert graded == {Grade.PLAIN: 6, Grade.ORDERED: 4, Grade.DELAYED: 3}
    check_growth(world)


@simulated()
async def test_classes_of_publishing_are_told_apart_however_messages_come(world: World) -> None:
    peer = peer_of(world)
    topic = await peer.topic("classes")
    one, two = Draft(b"1", flags=Flag.CLASS_1), Draft(b"2", flags=Flag.CLASS_2)
    plain, first = Draft(b"0"), Draft(b"3", flags=Flag.CLASS_1, tag=b"t", priority=1)
    await peer.publish(topic, plain, one, one, two, plain, first, two, two)
    graded = {e.grade: e.messages for e in everything(world) if e.verb is Verb.PUBLISHED}
    assert graded == {Grade.PLAIN: 2, Grade.CLASS_1: 3, Grade.CLASS_2: 3}
    check_growth(world)


@simulated()
async def test_a_half_message_is_counted_when_it_is_committed_as_what_it_was(world: World) -> None:
    peer = peer_of(world)
    topic = await peer.topic("deals")
    halves = world.client.halves
    parts = Draft(b"half").parts((1, 2), 3)
    committed = await halves.prepare(topic, "p", parts)
    dropped = await halves.prepare(topic, "p", parts)
    assert everything(world) == []
    await halves.end(topic, committed, commit=True)
    await halves.end(topic, dropped, commit=False)
    graded = {e.grade: e.messages for e in everything(world) if e.verb is Verb.PUBLISHED}
    assert graded == {Grade.HALF: 1}
    check_growth(world)


@simulated()
async def test_a_duplicate_within_the_window_is_not_counted_again(world: World) -> None:
    peer = peer_of(world)
    topic = await peer.topic("once", TopicOptions(deduplication_ms=60_000))
    draft = Draft(b"x" * 10, deduplication_id=b"a")
    await peer.publish(topic, draft, draft)
    await peer.publish(topic, draft, Draft(b"y", deduplication_id=b"b"))
    (published,) = [each for each in everything(world) if each.verb is Verb.PUBLISHED]
    assert published.messages == 2
    check_growth(world)


@simulated()
async def test_timed_leases_are_deliveries_and_acks_count_once(world: World) -> None:
    peer = peer_of(world, 1)
    topic = await peer.topic("leased", groups={DEFAULT_GROUP: GroupOptions(ordered=True)})
    await peer.publish(topic, *[b"x" * 5_000] * 3)
    spec = ReceiveSpec(topic, DEFAULT_GROUP, messages=2, lease_ms=60_000, origin=MINE)
    received = await peer.client.receive(spec)
    tokens = list(received.tokens)
    for _ in range(2):
        changes = [LeaseChange(token, LeaseVerb.ACK) for token in tokens]
        await peer.client.settle_leases(topic, DEFAULT_GROUP, changes, MINE)

    by_verb = {each.verb: each for each in everything(world) if each.group == DEFAULT_GROUP}
    delivered, acked = by_verb[Verb.DELIVERED], by_verb[Verb.ACKED]
    assert (delivered.messages, delivered.size_bytes, delivered.units_4k) == (2, 10_000, 4)
    assert (delivered.origin, delivered.grade) == (MINE, Grade.ORDERED)
    assert (acked.messages, acked.origin, acked.grade) == (2, MINE, Grade.ORDERED)
    check_growth(world)


@simulated()
async def test_each_lease_that_ends_at_once_is_a_delivery_and_one_that_reached_nobody_a_return(
    world: World,
) -> None:
    peer = peer_of(world, 1)
    topic = await peer.topic("leased")
    await peer.publish(topic, b"x" * 5_000)
    spec = ReceiveSpec(topic, DEFAULT_GROUP, lease_ms=0, origin=MINE)
    got = [await peer.client.receive(spec) for _ in range(6)]
    assert got[-1].deliveries is not None
    size = len(got[-1].deliveries.slots[0])
    back = LeaseChange(got[-1].tokens[0], LeaseVerb.RETURN, slot_bytes=size)
    for _ in range(2):
        await peer.client.settle_leases(topic, DEFAULT_GROUP, [back], MINE)
    by_verb = {each.verb: each for each in everything(world) if each.group == DEFAULT_GROUP}
    delivered, returned = by_verb[Verb.DELIVERED], by_verb[Verb.RETURNED]
    assert (delivered.messages, delivered.units_4k, delivered.origin) == (6, 12, MINE)
    assert (returned.messages, returned.units_4k, returned.origin) == (1, 2, MINE)
    assert world.figures(topic, DEFAULT_GROUP).ready == 1
    check_growth(world)


@simulated()
async def test_session_acks_are_counted_under_their_own_origin(world: World) -> None:
    peer, other = peer_of(world, 1), peer_of(world, 2)
    topic = await peer.topic("pushed")
    recorder, second = peer.attach(topic, credit=2), Recorder(world.client)
    await peer.publish(topic, b"1", b"2")
    await recorder.wait_for(2)
    spec = ConsumerSpec(topic, DEFAULT_GROUP, other.session, auto_ack=True)
    second.consumer = world.client.attach(spec, second)
    second.grant(5)
    await peer.publish(topic, b"3")
    await second.wait_for(1)
    await recorder.ack()
    await world.settle_down()
    found = messages(world)
    assert (found["pushed", "acked", 1], found["pushed", "acked", 2]) == (2, 1)
    assert not any(verb == "delivered" for _, verb, _ in found)


@simulated()
async def test_dead_letters_are_internal_routed_and_never_published(world: World) -> None:
    peer = peer_of(world)
    await peer.topic("dead")
    topic = await peer.topic("work", group=GroupOptions(dead_letter=DeadLetter(None, "dead")))
    await peer.publish(topic, b"bad", b"good")
    recorder = peer.attach(topic, credit=2)
    await recorder.wait_for(2)
    await recorder.settle(Settlement.DEAD_LETTER, 0)
    await world.settle_down()

    found = messages(world)
    assert found["dead", "routed", INTERNAL] == 1
    assert ("dead", "published", INTERNAL) not in found
    assert not any(verb == "acked" for _, verb, _ in found)
    check_growth(world)


@simulated()
async def test_counts_survive_a_crash_and_a_snapshot(world: World) -> None:
    peer = peer_of(world)
    topic = await peer.topic("kept")
    await peer.publish(topic, b"1", b"2")
    await peer.topic("gone")
    await peer.publish(await peer.topic("gone"), b"3")
    await peer.client.administer(DeleteTopic(DEFAULT_TENANT, "gone"))
    await world.crash()
    assert messages(world)["kept", "published", MINE] == 2
    await world.restart()
    assert messages(world)["gone", "published", MINE] == 1
    for replica in world.opened.store.replicas():
        again = load(dump(replica.state))
        assert state_hash(again) == state_hash(replica.state)
        assert list(counts(again)) == list(counts(replica.state))
    check_growth(world)


@simulated()
async def test_what_was_reported_is_not_told_again_and_nothing_falls(world: World) -> None:
    peer = peer_of(world)
    topic = await peer.topic("kept")
    await peer.publish(topic, b"1")
    gone = await peer.topic("gone")
    await peer.publish(gone, b"2")
    await peer.client.administer(DeleteTopic(DEFAULT_TENANT, "gone"))
    await metered(world)
    assert everything(world) == []

    await peer.publish(topic, b"3")
    await world.crash()
    (first, *_) = everything(world)
    assert first.messages == 2
    assert {each.topic for each in everything(world)} == {"kept"}
    again = await peer_of(world).topic("gone")
    await peer_of(world).publish(again, b"4")
    told = [e for e in everything(world) if e.topic == "gone" and e.verb is Verb.ROUTED]
    assert [each.messages for each in told] == [1]
    assert told[0].topic_id != gone.id
    check_growth(world)


@simulated()
async def test_a_report_leaves_what_came_behind_it(world: World) -> None:
    peer = peer_of(world)
    topic = await peer.topic("busy")
    await peer.publish(topic, b"1")
    replica = world.opened.store.replica(topic.queues[0].group)
    before = replica.state.applied
    await peer.publish(topic, b"2")
    replica.propose(commands.Metered(before), (0, 0, 0), None)
    await world.settle_down()
    assert messages(world)["busy", "routed", MINE] == 2


@simulated()
async def test_transient_topics_are_counted_in_their_own_group(world: World) -> None:
    peer = peer_of(world)
    topic = await peer.topic("memory", TopicOptions(durable=False))
    await peer.publish(topic, b"1", b"2")
    replica = world.opened.store.replica(TRANSIENT_GROUP)
    assert [each.messages for each in counts(replica.state)] == [2, 2]


@simulated()
async def test_deleted_topics_beyond_the_limit_are_forgotten_and_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "RETIRED_MAX", 2)
    peer = peer_of(world)
    for number in range(4):
        name = f"brief{number}"
        topic = await peer.topic(name, TopicOptions(durable=False))
        await peer.publish(topic, b"1", b"2", b"3")
        await peer.client.administer(DeleteTopic(DEFAULT_TENANT, name))
    state = world.opened.store.replica(TRANSIENT_GROUP).state
    assert state.ledger.forgotten == 6
    assert {each.topic for each in counts(state)} == {"brief2", "brief3"}


def test_groups_beyond_the_limit_share_one_name() -> None:
    counted = TopicUsage()
    for number in range(topic_usage.GROUPS_COUNTED_MAX + 5):
        counted.taken_by(f"g{number}", 1).messages += 1
    assert len(counted.taken) == topic_usage.GROUPS_COUNTED_MAX + 1
    (others,) = [tally for (group, _), tally in counted.taken.items() if group == OTHER_GROUP]
    assert others.messages == 5


@pytest.mark.parametrize(
    ("size", "units"), [(0, 1), (1, 1), (4_096, 1), (4_097, 2), (8_192, 2), (8_193, 3)]
)
def test_units_of_one_message(size: int, units: int) -> None:
    assert units_of([HEADER_BYTES + size]) == units


@simulated()
async def test_a_stream_without_groups_can_be_read_from_disk(world: World) -> None:
    """As `__metering` is: nobody acks it, and after a restart nothing of it is in memory."""
    peer = peer_of(world)
    topic = await peer.topic("records", TopicOptions(kind=TopicKind.STREAM), groups={})
    await peer.publish(topic, *[b"x" * 2_000] * 40)
    await world.restart()
    found = await world.client.peek(topic, 0, Offset(0), 100)
    assert [offset for offset, _ in found] == list(range(40))
