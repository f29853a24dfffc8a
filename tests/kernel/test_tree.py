"""The topic tree: who gets what is published under a name, now or later, whatever happens."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.api import message as messages
from kernel.api.client import PutRoute, PutRouter, Settlement
from kernel.api.message import Ext
from kernel.api.model import DEFAULT_TENANT, Match, Route, RouterOptions, TopicOptions
from kernel.api.tree import SubscriberSpec, Subscription
from kernel.broker.group_state.retained import Retained, RetainedMessage
from kernel.common.errors import Code, KernelError
from tests.kernel.tree_client import Listener, SubscriberClient, retained, tell, will_of
from tests.simulator.peer import Draft
from tests.simulator.world import World, simulated


@simulated()
async def test_a_live_route_hears_what_is_published_under_its_pattern(world: World) -> None:
    listener = Listener(world, "a/+/c")

    await tell(world, "a/b/c", b"1", b"2")
    await tell(world, "a/b", b"no")
    await tell(world, "a/b/c/d", b"no")
    listener.watch.cancel()
    await tell(world, "a/b/c", b"too late")

    assert listener.got == [("a/b/c", b"1"), ("a/b/c", b"2")]


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("#", "a/b", True),
        ("#", "$own/a", False),
        ("+/a", "$own/a", False),
        ("$own/#", "$own/a", True),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("a/+", "a", False),
        ("a/+", "a/", True),
        ("+/+", "/a", True),
        ("/+", "/a", True),
        ("+", "/a", False),
        ("a/b", "a/b/", False),
        ("a/+/#", "a/b", True),
        ("a/+/#", "a", False),
    ],
)
def test_patterns_match_as_levels_say(pattern: str, name: str, matches: bool) -> None:
    @simulated()
    async def scenario(world: World) -> None:
        live = Listener(world, pattern)
        await tell(world, name, b"x", retain=True)
        assert bool(live.got) == matches
        assert bool(await retained(world, pattern)) == matches

    scenario()


@simulated()
async def test_a_name_with_wildcards_and_a_bad_pattern_are_refused(world: World) -> None:
    for name in ("", "a/#", "+", "a\0b", "a" * 65_536):
        with pytest.raises(KernelError) as refused:
            world.client.tree.to(DEFAULT_TENANT, name)
        assert refused.value.code is Code.INVALID_ARGUMENT
    for pattern in ("", "a/#/b", "a+", "a/b#", "a\0"):
        with pytest.raises(KernelError) as refused:
            Listener(world, pattern)
        assert refused.value.code is Code.INVALID_ARGUMENT


@simulated()
async def test_a_subscriber_gets_what_came_while_it_was_away(world: World) -> None:
    subscribed = await SubscriberClient.open(world, "g")
    assert await subscribed.subscribe("dev/+/alert")
    await subscribed.leave()
    await tell(world, "dev/1/alert", b"1")
    await tell(world, "dev/2/alert", b"2")
    await tell(world, "dev/2/other", b"no")

    back = await SubscriberClient.open(world, "g", credit=10)

    assert back.subscriber.resumed
    assert sorted(each.body for each in await back.recorder.wait_for(2)) == [b"1", b"2"]
    for each in list(back.recorder.got):
        await back.recorder.ack(each)
    await back.leave()
    again = await SubscriberClient.open(world, "g", credit=10)
    await asyncio.sleep(1)
    assert again.bodies == []


@simulated()
async def test_what_is_acked_stays_acked_and_the_rest_comes_back_after_a_crash(
    world: World,
) -> None:
    subscribed = await SubscriberClient.open(world, "g", credit=10)
    await subscribed.subscribe("t")
    await tell(world, "t", b"1", b"2", b"3")
    first = (await subscribed.recorder.wait_for(3))[0]
    await subscribed.recorder.ack(first)
    await world.crash()

    back = await SubscriberClient.open(world, "g", credit=10)

    got = await back.recorder.wait_for(2)
    assert [(each.body, each.attempt) for each in got] == [(b"2", 2), (b"3", 2)]


@simulated()
async def test_a_message_is_one_reference_however_many_subscribers_its_pattern_has(
    world: World,
) -> None:
    for number in range(50):
        subscribed = await SubscriberClient.open(world, f"g{number}")
        await subscribed.subscribe("news")
        await subscribed.leave()
    before = world.opened.store.statistics().entries_applied
    sent = await tell(world, "news", b"x" * 1_000)
    assert sent.batch is not None
    assert world.opened.store.statistics().entries_applied - before <= 2
    lists = [
        queue
        for replica in world.opened.store.replicas()
        for queue in replica.state.queues.values()
        if queue.pending_acks is not None
    ]
    assert [queue.index.tail for queue in lists] == [1]

    for number in range(50):
        back = await SubscriberClient.open(world, f"g{number}", credit=1)
        await back.recorder.wait_for(1)
        await back.recorder.ack()
        await back.leave()

    assert [queue.needed() for queue in lists] == [[]]


@simulated()
async def test_unsubscribing_lets_go_of_what_was_kept(world: World) -> None:
    subscribed = await SubscriberClient.open(world, "g")
    await subscribed.subscribe("a/#")
    await tell(world, "a/1", b"1")
    subscribed.consumer.remove(Subscription("a/#"))

    assert await subscribed.subscriber.unsubscribe(Subscription("a/#"))
    assert not await subscribed.subscriber.unsubscribe(Subscription("a/#"))

    for replica in world.opened.store.replicas():
        assert not replica.state.indexes
    assert not world.client.tree.to(DEFAULT_TENANT, "a/1").count
    await subscribed.leave()
    assert not (await SubscriberClient.open(world, "g")).subscriber.subscriptions


@simulated()
async def test_a_clean_start_forgets_subscriptions_notes_and_messages(world: World) -> None:
    subscribed = await SubscriberClient.open(world, "g")
    await subscribed.subscribe("t")
    subscribed.subscriber.note([(b"k", b"v")])
    await subscribed.leave()
    await tell(world, "t", b"1")

    clean = await SubscriberClient.open(world, "g", clean=True, credit=5)

    assert not clean.subscriber.resumed
    assert not clean.subscriber.subscriptions
    assert not clean.subscriber.notes
    await asyncio.sleep(1)
    assert not world.client.tree.to(DEFAULT_TENANT, "t").count


@simulated()
async def test_a_second_connection_takes_over_and_the_first_is_fenced(world: World) -> None:
    first = await SubscriberClient.open(world, "g")
    await first.subscribe("t")

    second = await SubscriberClient.open(world, "g")

    assert first.lost
    assert second.subscriber.epoch > first.subscriber.epoch
    errors: list[KernelError | None] = []
    first.subscriber.note([(b"k", b"v")], errors.append)
    await asyncio.sleep(0.1)
    assert errors[0] is not None
    assert errors[0].code is Code.SESSION_FENCED
    with pytest.raises(KernelError) as refused:
        await first.subscribe("u")
    assert refused.value.code is Code.SESSION_FENCED
    await first.leave(will=True)
    await tell(world, "t", b"1")
    second.consumer.grant(1)
    await second.recorder.wait_for(1)


@simulated()
async def test_a_subscriber_ends_when_its_time_is_up(world: World) -> None:
    subscribed = await SubscriberClient.open(world, "g", expiry_ms=5_000)
    await subscribed.subscribe("t")
    await subscribed.leave()
    await asyncio.sleep(3)
    assert world.client.tree.to(DEFAULT_TENANT, "t").count
    await asyncio.sleep(4)

    assert not world.client.tree.to(DEFAULT_TENANT, "t").count
    assert not (await SubscriberClient.open(world, "g")).subscriber.resumed


@simulated()
async def test_a_full_disk_refuses_new_subscribers_and_lets_known_ones_go_on(world: World) -> None:
    subscribed = await SubscriberClient.open(world, "known")
    await subscribed.subscribe("t")
    await subscribed.leave()
    await tell(world, "t", b"1")
    world.client.accepting = False

    back = await SubscriberClient.open(world, "known", credit=1)

    assert back.subscriber.resumed
    assert [each.body for each in await back.recorder.wait_for(1)] == [b"1"]
    await back.recorder.ack()
    will = will_of(world, "w", b"x")
    for name, expiry_ms, last in (("durable", None, None), ("with a will", 0, will)):
        with pytest.raises(KernelError) as refused:
            await SubscriberClient.open(world, name, expiry_ms=expiry_ms, will=last)
        assert refused.value.code is Code.NO_SPACE
    assert not (await SubscriberClient.open(world, "in memory", expiry_ms=0)).subscriber.durable


@simulated()
async def test_notes_are_there_for_the_next_connection(world: World) -> None:
    subscribed = await SubscriberClient.open(world, "g")
    noted: list[KernelError | None] = []
    subscribed.subscriber.note([(b"a", b"1"), (b"b", b"2")], noted.append)
    subscribed.subscriber.note([(b"a", None)], noted.append)
    await asyncio.sleep(0.1)
    assert noted == [None, None]
    await world.crash()

    back = await SubscriberClient.open(world, "g")

    assert dict(back.subscriber.notes) == {b"b": b"2"}


@simulated()
async def test_a_will_is_published_when_the_connection_is_lost(world: World) -> None:
    listener = Listener(world, "will/#")
    subscribed = await SubscriberClient.open(
        world, "g", expiry_ms=0, will=will_of(world, "will/g", b"dead")
    )
    assert subscribed.subscriber.durable
    await subscribed.leave(will=True)
    await asyncio.sleep(2)
    assert listener.bodies == [b"dead"]

    other = await SubscriberClient.open(
        world, "h", expiry_ms=0, will=will_of(world, "will/h", b"no")
    )
    await other.leave(will=False)
    await asyncio.sleep(2)
    assert listener.bodies == [b"dead"]


@simulated()
async def test_a_delayed_will_is_cancelled_by_a_new_connection(world: World) -> None:
    listener = Listener(world, "w")
    will = will_of(world, "w", b"dead", delay_ms=5_000)
    subscribed = await SubscriberClient.open(world, "g", will=will)
    await subscribed.leave(will=True)
    await asyncio.sleep(3)
    back = await SubscriberClient.open(world, "g", will=will)
    await asyncio.sleep(10)
    assert listener.bodies == []
    await back.leave(will=True)
    await asyncio.sleep(8)
    assert listener.bodies == [b"dead"]


@simulated()
async def test_wills_of_a_crashed_node_are_published_once_by_the_next(world: World) -> None:
    await SubscriberClient.open(world, "g", will=will_of(world, "w", b"dead", retain=True))
    await SubscriberClient.open(
        world, "h", will=will_of(world, "late", b"dead", delay_ms=4_000, retain=True)
    )
    keeper = await SubscriberClient.open(world, "k")
    await keeper.subscribe("+")
    await world.crash()
    await asyncio.sleep(2)
    assert await retained(world, "#") == [("w", b"dead")]
    await world.crash()
    await asyncio.sleep(8)
    assert await retained(world, "#") == [("late", b"dead"), ("w", b"dead")]

    back = await SubscriberClient.open(world, "k", credit=10)

    await asyncio.sleep(1)
    assert sorted(back.bodies) == [b"dead", b"dead"]


@simulated()
async def test_a_share_gives_each_message_to_one_member_and_ends_with_the_last(
    world: World,
) -> None:
    all_subscribed = [await SubscriberClient.open(world, f"g{at}", credit=2) for at in range(3)]
    for subscribed in all_subscribed:
        await subscribed.subscribe("job/#", "team")
    for number in range(6):
        await tell(world, f"job/{number}", b"%d" % number)
    await asyncio.sleep(1)

    got = [each for subscribed in all_subscribed for each in subscribed.bodies]
    assert sorted(got) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    for subscribed in all_subscribed:
        await subscribed.subscriber.unsubscribe(Subscription("job/#", "team"))
        assert bool(world.client.tree.to(DEFAULT_TENANT, "job/x").count) == (
            subscribed is not all_subscribed[2]
        )


@simulated()
async def test_a_share_of_members_in_memory_goes_with_them_and_with_a_crash(world: World) -> None:
    subscribed = await SubscriberClient.open(world, "g", expiry_ms=0, credit=5)
    assert not subscribed.subscriber.durable
    await subscribed.subscribe("t", "team")
    await tell(world, "t", b"1")
    await subscribed.recorder.wait_for(1)
    await subscribed.leave()
    assert not world.client.tree.to(DEFAULT_TENANT, "t").count

    other = await SubscriberClient.open(world, "h", expiry_ms=0)
    await other.subscribe("t", "team")
    await world.crash()
    assert not world.client.tree.to(DEFAULT_TENANT, "t").count


@simulated()
async def test_a_subscriber_in_memory_cannot_subscribe_durably(world: World) -> None:
    subscribed = await SubscriberClient.open(world, "g", expiry_ms=0)
    with pytest.raises(KernelError) as refused:
        await subscribed.subscribe("t")
    assert refused.value.code is Code.INVALID_ARGUMENT


@simulated()
async def test_a_topic_of_the_tree_stores_what_is_published_below_its_name(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("dev", TopicOptions(tree=True))
    listener = Listener(world, "#")
    recorder = peer.attach(topic, credit=10)

    await tell(world, "dev/1/x", b"1")
    await tell(world, "dev", b"2")
    await tell(world, "device", b"no")
    await peer.publish(topic, b"3")

    assert [each.body for each in await recorder.wait_for(3)] == [b"1", b"2", b"3"]
    assert listener.got == [("dev/1/x", b"1"), ("dev", b"2"), ("device", b"no"), ("dev", b"3")]
    slot = messages.decode(recorder.got[2].slot)
    assert slot.ext[Ext.TREE_NAME] == b"dev"


@simulated()
async def test_a_door_router_and_the_tree_get_each_others_messages(world: World) -> None:
    peer = world.peer()
    queue = await peer.topic("q")
    door = RouterOptions(match=Match.PATTERN, tree=True)
    await world.client.administer(PutRouter(DEFAULT_TENANT, "door", door))
    await world.client.administer(PutRoute(DEFAULT_TENANT, "door", Route(key="a/#", topic="q")))
    subscribed = await SubscriberClient.open(world, "g", credit=10)
    await subscribed.subscribe("a/+")
    recorder = peer.attach(queue, credit=10)

    await tell(world, "a/1", b"from the tree")
    found = world.client.to_router(DEFAULT_TENANT, "door", "a/2")
    await peer.publish(found, b"from the router")

    assert [each.body for each in await recorder.wait_for(2)] == [
        b"from the tree",
        b"from the router",
    ]
    assert sorted(each.body for each in await subscribed.recorder.wait_for(2)) == [
        b"from the router",
        b"from the tree",
    ]
    before = world.client.topology_version
    listener = Listener(world, "a/2")
    assert world.client.topology_version > before
    await peer.publish(world.client.to_router(DEFAULT_TENANT, "door", "a/2"), b"again")
    assert listener.got == [("a/2", b"again")]


@simulated()
async def test_a_batch_of_a_subscriber_is_stored_once(world: World) -> None:
    subscribed = await SubscriberClient.open(world, "g", credit=10)
    await subscribed.subscribe("t")
    found = world.client.tree.to(DEFAULT_TENANT, "t")
    sequence = subscribed.subscriber.epoch << 32 | 1
    for _ in range(2):
        batch = world.client.batch(subscribed.peer.session, _Deaf())
        parts = Draft(b"x", name="t").parts(batch.uid(), 0)
        batch.add(found, parts, sum(map(len, parts)))
        batch.once(subscribed.subscriber.number, sequence)
        world.client.submit(batch)
        await asyncio.sleep(0.1)
        await world.crash()
        subscribed = await SubscriberClient.open(world, "g", credit=10)
        found = world.client.tree.to(DEFAULT_TENANT, "t")

    await asyncio.sleep(1)
    assert subscribed.bodies == [b"x"]


class _Deaf:
    def published(self, batch: object) -> None:
        """Nobody is told."""


@simulated()
async def test_no_ok_while_the_disk_holds_its_syncs(world: World) -> None:
    subscribed = await SubscriberClient.open(world, "g")
    world.workers.hold("weir-journal-writer")
    waiting = [
        asyncio.ensure_future(subscribed.subscriber.subscribe(Subscription("t"), b"")),
        asyncio.ensure_future(
            world.client.tree.open(SubscriberSpec(DEFAULT_TENANT, "h", False, None), subscribed)
        ),
        asyncio.ensure_future(tell(world, "r", b"x", retain=True)),
        asyncio.ensure_future(
            world.client.tree.open(SubscriberSpec(DEFAULT_TENANT, "m"), subscribed)
        ),
    ]
    await asyncio.sleep(2)

    assert [each.done() for each in waiting] == [False, False, False, True]
    world.workers.release("weir-journal-writer")
    await asyncio.gather(*waiting)


@simulated()
async def test_settlements_of_a_subscriber_can_be_returned_unsettled(world: World) -> None:
    subscribed = await SubscriberClient.open(world, "g", credit=2)
    await subscribed.subscribe("t")
    await tell(world, "t", b"1")
    (delivery,) = await subscribed.recorder.wait_for(1)
    subscribed.recorder.settle_now(Settlement.RETURN, delivery)
    got = await subscribed.recorder.wait_for(2)
    assert [each.attempt for each in got] == [1, 1]


@simulated()
async def test_of_several_subscriptions_each_is_told_what_became_of_it(world: World) -> None:
    subscribed = await SubscriberClient.open(world, "g", credit=10)
    wanted = {
        Subscription("a/+"): b"1",
        Subscription("bad/#/x"): b"2",
        Subscription("b", "share"): b"3",
        Subscription("s" * 10, "n" * 300): b"4",
    }
    told = await subscribed.subscriber.subscribe_all(wanted)
    good, bad = list(wanted)[::2], list(wanted)[1::2]
    assert [told[each] for each in good] == [True, True]
    errors = [told[each] for each in bad]
    assert all(isinstance(each, KernelError) for each in errors)
    assert dict(subscribed.subscriber.subscriptions) == {each: wanted[each] for each in good}
    again = await subscribed.subscriber.subscribe_all({good[0]: b"5", Subscription("c"): b"6"})
    assert again == {good[0]: False, Subscription("c"): True}
    for each in subscribed.subscriber.subscriptions:
        subscribed.consumer.add(each, each)
    await tell(world, "a/1", b"x")
    await tell(world, "b", b"y")
    assert sorted(subscribed.bodies) == [b"x", b"y"]

    gone = await subscribed.subscriber.unsubscribe_all([good[0], Subscription("never")])
    assert gone == {good[0]: True, Subscription("never"): False}
    await tell(world, "a/1", b"late")
    assert len(subscribed.bodies) == 2
    await subscribed.leave()
    back = await SubscriberClient.open(world, "g")
    assert dict(back.subscriber.subscriptions) == {good[1]: b"3", Subscription("c"): b"6"}
    with pytest.raises(KernelError) as caught:
        await subscribed.subscriber.subscribe_all({Subscription("d"): b""})
    assert caught.value.code is Code.SESSION_FENCED


@simulated()
async def test_it_is_told_under_which_patterns_something_is_retained(world: World) -> None:
    await tell(world, "a/b", b"kept", retain=True)
    tree = world.client.tree
    patterns = ["a/b", "a/+", "#", "a/c", "b/#", "+"]
    assert list(await tree.retains(DEFAULT_TENANT, patterns)) == [True] * 3 + [False] * 3
    with pytest.raises(KernelError):
        await tree.retains(DEFAULT_TENANT, ["a/#/b"])


@simulated()
async def test_a_list_that_waited_for_credit_is_read_once_there_is_some(world: World) -> None:
    subscribed = await SubscriberClient.open(world, "g", credit=2)
    for pattern in ("a", "b", "c"):
        await subscribed.subscribe(pattern)
        await tell(world, pattern, b"1", b"2")
    assert len(subscribed.bodies) == 2
    subscribed.consumer.grant(1)
    subscribed.consumer.grant(2)
    assert len(subscribed.bodies) == 5
    subscribed.consumer.grant(5)
    assert len(subscribed.bodies) == 6
    await tell(world, "c", b"3")
    assert subscribed.bodies[-1] == b"3"


@pytest.mark.parametrize("name", ["$SYS", "$SYS/broker/uptime", "$share/g/a"])
def test_nobody_publishes_to_what_is_the_servers_own_by_whatever_way(name: str) -> None:
    @simulated()
    async def scenario(world: World) -> None:
        subscribed = await SubscriberClient.open(world, "g", credit=10)
        await subscribed.subscribe(f"{name.split('/', maxsplit=1)[0]}/#")
        live = Listener(world, f"{name.split('/', maxsplit=1)[0]}/#")
        tree = world.client.tree
        for retain in (False, True):
            with pytest.raises(KernelError) as caught:
                tree.to(DEFAULT_TENANT, name, retain=retain)
            assert caught.value.code is Code.NOT_ALLOWED
        with pytest.raises(KernelError) as caught:
            await SubscriberClient.open(world, "w", will=will_of(world, name, b"x"))
        assert caught.value.code is Code.NOT_ALLOWED
        door = RouterOptions(match=Match.PATTERN, tree=True)
        await world.client.administer(PutRouter(DEFAULT_TENANT, "door", door))
        assert not world.client.to_router(DEFAULT_TENANT, "door", name).count
        assert (subscribed.bodies, live.got) == ([], [])
        await tell(world, "$own/a", b"may be")

    scenario()


LEVELS = st.lists(st.sampled_from(["a", "b", "$c", ""]), min_size=1, max_size=3)
WILD = st.lists(st.sampled_from(["a", "b", "$c", "", "+"]), min_size=1, max_size=3)


@given(st.sets(LEVELS.map("/".join)), WILD.map("/".join), st.booleans())
def test_whether_something_is_retained_is_known_without_all_that_is(
    names: set[str], pattern: str, goes_on: bool
) -> None:
    kept = Retained()
    for index, name in enumerate(sorted(names | {"gone/x"}), 1):
        kept.put("t", name, RetainedMessage(index, 0, 0, 0))
    kept.remove("t", "gone/x")
    pattern += "/#" * goes_on
    found, steps = kept.has("t", pattern)
    assert found == bool(list(kept.match("t", pattern)))
    assert steps <= 3 * len(names) + 4
    assert kept.has("other", pattern) == (False, 0)
