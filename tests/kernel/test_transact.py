"""Transactions: publishes and settlements of one Raft group, all or none, also after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from kernel.api.atomic import (
    TRANSACTION_MESSAGES_MAX,
    TRANSACTION_PARTS_MAX,
    ChangeLeases,
    Settle,
    Transaction,
)
from kernel.api.client import (
    DeleteTopic,
    LeaseChange,
    LeaseVerb,
    PublishBatch,
    ReceiveSpec,
    Settlement,
)
from kernel.api.model import (
    DEFAULT_GROUP,
    DEFAULT_TENANT,
    DeadLetter,
    GroupOptions,
    Overflow,
    TopicInfo,
    TopicOptions,
)
from kernel.common.errors import Code, KernelError
from kernel.requests.pull import encode_token
from tests.simulator.disk import SimulatedDisk
from tests.simulator.peer import Draft, Peer, Recorder
from tests.simulator.world import WRITER, World, simulated


def batch_of(peer: Peer, to: Sequence[TopicInfo], *bodies: bytes) -> PublishBatch:
    """A batch that is not submitted: each body to each topic."""
    batch = peer.client.batch(peer.session, peer)
    for body in bodies:
        for topic in to:
            parts = Draft(body).parts(batch.uid(), 0)
            batch.add(peer.client.to_topic(topic), parts, sum(map(len, parts)))
    return batch


async def together(peer: Peer, count: int, **fields: object) -> list[TopicInfo]:
    """So many topics whose queues live in one Raft group."""
    found: dict[int, list[TopicInfo]] = {}
    for number in range(100):
        topic = await peer.topic(f"t{number}", **fields)  # type: ignore[arg-type]
        same = found.setdefault(topic.queues[0].group, [])
        same.append(topic)
        if len(same) == count:
            return same
    raise AssertionError("unreachable")


def figures(world: World, topic: TopicInfo) -> tuple[int, int]:
    """(ready, leased) of a topic."""
    found = world.figures(topic, DEFAULT_GROUP)
    return found.ready, found.leased


async def refused(world: World, transaction: Transaction) -> KernelError:
    with pytest.raises(KernelError) as caught:
        await world.client.transact(transaction)
    return caught.value


async def leased(world: World, topic: TopicInfo, count: int, lease_ms: int = 30_000) -> list[bytes]:
    """Tokens of so many messages."""
    got = await world.client.receive(
        ReceiveSpec(topic, DEFAULT_GROUP, messages=count, lease_ms=lease_ms)
    )
    return list(got.tokens)


def change(topic: TopicInfo, verb: LeaseVerb, *tokens: bytes) -> ChangeLeases:
    return ChangeLeases(topic, DEFAULT_GROUP, [LeaseChange(token, verb) for token in tokens])


async def holding(peer: Peer, topic: TopicInfo, *bodies: bytes) -> Recorder:
    """A consumer that holds these messages."""
    await peer.publish(topic, *bodies)
    recorder = peer.attach(topic, credit=len(bodies))
    await recorder.wait_for(len(bodies))
    return recorder


@simulated()
async def test_publishes_and_settlements_happen_together(world: World) -> None:
    peer = world.peer()
    source, target = await together(peer, 2)
    recorder = await holding(peer, source, b"1", b"2", b"3")
    batch = batch_of(peer, [target], b"a", b"b")
    assert recorder.consumer is not None
    await world.client.transact(
        Transaction(
            batch,
            [
                Settle(recorder.consumer, Settlement.ACK, [0, 2]),
                Settle(recorder.consumer, Settlement.RELEASE, [1]),
            ],
        )
    )
    assert [batch.place(at) for at in range(2)] == [
        (target.queues[0].id, 0),
        (target.queues[0].id, 1),
    ]
    assert (figures(world, source), figures(world, target)) == ((1, 0), (2, 0))
    recorder.held.clear()
    recorder.grant(5)
    await world.settle_down()
    assert (recorder.bodies[3:], recorder.attempts[3:]) == ([b"2"], [2])
    assert peer.completed == [cast("PublishBatch", peer.completed[0])]  # its sink heard nothing


@simulated()
async def test_one_lost_lease_refuses_everything(world: World) -> None:
    peer = world.peer()
    source, target = await together(peer, 2)
    await peer.publish(source, b"1", b"2")
    tokens = await leased(world, source, 2, lease_ms=1_000)
    await asyncio.sleep(2)
    (again,) = await leased(world, source, 1)
    recorder = await holding(peer, target, b"held")
    assert recorder.consumer is not None
    wanted = Transaction(
        batch_of(peer, [target], b"a"),
        [Settle(recorder.consumer, Settlement.ACK, [0])],
        [change(source, LeaseVerb.ACK, *tokens)],
    )
    assert (await refused(world, wanted)).code is Code.LEASE_LOST
    assert (figures(world, source), figures(world, target)) == ((1, 1), (0, 1))
    # The holder of the new lease, and the late one of the message that nobody got since, may.
    await world.client.transact(
        Transaction(
            batch_of(peer, [target], b"a"),
            [Settle(recorder.consumer, Settlement.ACK, [0])],
            [change(source, LeaseVerb.ACK, again, tokens[1])],
        )
    )
    assert (figures(world, source), figures(world, target)) == ((0, 0), (1, 0))


@simulated()
async def test_queues_of_several_groups_are_refused(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("one")
    other = topic
    number = 0
    while other.queues[0].group == topic.queues[0].group:
        number += 1
        other = await peer.topic(f"other{number}")
    recorder = await holding(peer, other, b"held")
    assert recorder.consumer is not None
    settle = [Settle(recorder.consumer, Settlement.ACK, [0])]
    await peer.publish(other, b"leased")
    tokens = await leased(world, other, 1)
    for wanted in (
        Transaction(batch_of(peer, [topic, other], b"x")),
        Transaction(batch_of(peer, [topic], b"x"), settle),
        Transaction(batch_of(peer, [topic], b"x"), [], [change(other, LeaseVerb.ACK, *tokens)]),
    ):
        assert (await refused(world, wanted)).code is Code.NOT_SAME_GROUP
    assert (figures(world, topic), figures(world, other)) == ((0, 0), (0, 2))


@simulated()
async def test_what_cannot_be_carried_out_whole_is_refused_whole(world: World) -> None:
    peer = world.peer()
    full = TopicOptions(messages_max=1, overflow=Overflow.REJECT)
    topic, _ = await together(peer, 2, options=full)
    recorder = await holding(peer, topic, b"1")
    assert recorder.consumer is not None
    ack = Settle(recorder.consumer, Settlement.ACK, [0])
    for wanted, code in (
        (Transaction(None, [ack, ack]), Code.INVALID_ARGUMENT),
        (
            Transaction(None, [ack, Settle(recorder.consumer, Settlement.ACK, [7])]),
            Code.LEASE_LOST,
        ),
        (
            Transaction(None, [Settle(recorder.consumer, Settlement.RETURN, [0])]),
            Code.INVALID_ARGUMENT,
        ),
        (Transaction(batch_of(peer, [topic], b"2", b"3"), [ack]), Code.REJECTED),
        (Transaction(None, [ack], [change(topic, LeaseVerb.ACK, b"no token")]), Code.LEASE_LOST),
    ):
        assert (await refused(world, wanted)).code is code
    many = batch_of(peer, [await peer.topic("wide")], *[b""] * (TRANSACTION_MESSAGES_MAX + 1))
    error = await refused(world, Transaction(many))
    assert (error.code, "transaction_messages_max is 8192" in error.message) == (
        Code.LIMIT_EXCEEDED,
        True,
    )
    wide = [change(topic, LeaseVerb.ACK, encode_token(topic.queues[0].id, 0, 1))]
    for each in wide * TRANSACTION_PARTS_MAX:
        wide.append(ChangeLeases(topic, f"g{len(wide)}", each.changes))
    error = await refused(world, Transaction(None, [], wide))
    assert "transaction_parts_max is 10000" in error.message
    world.client.accepting = False
    wanted = Transaction(batch_of(peer, [topic], b"2"), [ack])
    assert (await refused(world, wanted)).code is Code.NO_SPACE
    world.client.accepting = True
    assert figures(world, topic) == (0, 1)
    # Nothing of the refused ones has taken the one place for good.
    await world.client.transact(Transaction(batch_of(peer, [topic], b"2"), [ack]))
    assert figures(world, topic) == (1, 0)


@simulated()
async def test_an_empty_transaction_is_done_at_once(world: World) -> None:
    await world.client.transact(Transaction(batch_of(world.peer(), [])))


@simulated()
async def test_the_last_attempt_given_back_is_a_dead_letter_and_keys_are_unlocked(
    world: World,
) -> None:
    peer = world.peer()
    dead = await peer.topic("dead")
    group = GroupOptions(ordered=True, attempts_max=1, dead_letter=DeadLetter(None, "dead"))
    topic = await peer.topic("work", group=group)
    await peer.publish(topic, *[Draft(b"%d" % n, key=b"k") for n in range(4)])
    recorder = peer.attach(topic, credit=1)
    await recorder.wait_for(1)
    assert recorder.consumer is not None
    recorder.grant(1)
    await world.client.transact(
        Transaction(None, [Settle(recorder.consumer, Settlement.RELEASE, [0])])
    )
    assert (await recorder.wait_for(2))[1].body == b"1"
    recorder.grant(1)
    await world.client.transact(Transaction(None, [Settle(recorder.consumer, Settlement.ACK, [1])]))
    assert (await recorder.wait_for(3))[2].body == b"2"
    await world.settle_down()
    assert figures(world, dead) == (1, 0)


@simulated()
async def test_a_session_that_ends_meanwhile_loses_nothing(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    recorder = await holding(peer, topic, b"1", b"2")
    assert recorder.consumer is not None
    settle = Settle(recorder.consumer, Settlement.ACK, [0])
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(world.client.transact(Transaction(None, [settle])))
        await asyncio.sleep(0)
        peer.close()
    other = world.peer().attach(topic, credit=5)
    await world.settle_down()
    assert (other.bodies, figures(world, topic)) == ([b"2"], (0, 1))


@simulated()
async def test_transient_topics_take_part_among_themselves(world: World) -> None:
    peer = world.peer()
    source, target = await together(peer, 2, options=TopicOptions(durable=False))
    recorder = await holding(peer, source, b"1")
    assert recorder.consumer is not None
    settle = Settle(recorder.consumer, Settlement.ACK, [0])
    await world.client.transact(Transaction(batch_of(peer, [target], b"a"), [settle]))
    assert (figures(world, source), figures(world, target)) == ((0, 0), (1, 0))


def test_a_power_loss_at_any_boundary_leaves_all_of_it_or_nothing() -> None:
    cuts: list[tuple[SimulatedDisk, int]] = []
    answered = 0
    names: list[str] = []
    with World(3) as world:

        def cut(number: int, what: str) -> None:
            seeds = (None, number, number + 99)
            cuts.extend((world.disk.crashed_copy(seed), answered) for seed in seeds)

        async def run() -> None:
            nonlocal answered
            peer = world.peer()
            source, target = await together(peer, 2)
            names.extend((source.name, target.name))
            await peer.publish(source, b"1", b"2")
            tokens = await leased(world, source, 2)
            world.disk.on_boundary = cut
            for token in tokens:
                batch = batch_of(peer, [target], b"." * 5_000)
                changes = [change(source, LeaseVerb.ACK, token)]
                await world.client.transact(Transaction(batch, [], changes))
                answered += 1
            cut(0, "the end")

        world.run(run())
        world.disk.on_boundary = None
    outcomes = set()
    for disk, heard in cuts:
        with World(disk=disk) as after:
            left, stored = after.run(counted(after, *names))
            assert left + stored == 2
            assert stored >= heard
            outcomes.add(stored)
    assert outcomes == {0, 1, 2}


async def counted(world: World, *names: str) -> list[int]:
    """Messages in each topic, leased ones too."""
    topics = [world.client.topic(DEFAULT_TENANT, name) for name in names]
    return [sum(figures(world, topic)) for topic in topics if topic is not None]


@simulated()
async def test_no_transaction_is_answered_while_the_disk_holds_its_sync(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    world.workers.hold(WRITER)
    task = asyncio.get_running_loop().create_task(
        world.client.transact(Transaction(batch_of(peer, [topic], b"1")))
    )
    await asyncio.sleep(5)
    assert not task.done()
    assert figures(world, topic) == (0, 0)
    world.workers.release(WRITER)
    await task
    assert figures(world, topic) == (1, 0)
    world.workers.hold(WRITER)
    error = await refused(world, Transaction(batch_of(peer, [topic], b"2")))
    assert error.code is Code.TIMEOUT
    world.workers.release(WRITER)


# --- Several groups -------------------------------------------------------------------------


async def apart(peer: Peer) -> list[TopicInfo]:
    """Two topics whose queues live in two Raft groups."""
    first = await peer.topic("first")
    for number in range(100):
        other = await peer.topic(f"other{number}")
        if other.queues[0].group != first.queues[0].group:
            return [first, other]
    raise AssertionError("unreachable")


@simulated()
async def test_what_need_not_be_whole_may_have_queues_of_several_groups(world: World) -> None:
    peer = world.peer()
    source, target = await apart(peer)
    recorder = await holding(peer, source, b"1", b"2")
    assert recorder.consumer is not None
    settle = Settle(recorder.consumer, Settlement.ACK, [0, 1])
    batch = batch_of(peer, [source, target], b"a")
    assert (await refused(world, Transaction(batch, [settle]))).code is Code.NOT_SAME_GROUP
    await world.client.transact(
        Transaction(batch_of(peer, [source, target], b"a"), [settle], whole=False)
    )
    assert (figures(world, source), figures(world, target)) == ((1, 0), (1, 0))


@simulated()
async def test_nothing_is_settled_if_a_publish_of_the_first_step_is_refused(world: World) -> None:
    peer = world.peer()
    source, target = await apart(peer)
    full = await peer.topic("full", options=TopicOptions(messages_max=1, overflow=Overflow.REJECT))
    await peer.publish(full, b"0")
    recorder = await holding(peer, source, b"1")
    assert recorder.consumer is not None
    settle = Settle(recorder.consumer, Settlement.ACK, [0])
    batch = batch_of(peer, [target, source, full], b"a")
    error = await refused(world, Transaction(batch, [settle], whole=False))
    assert error.code is Code.REJECTED
    assert figures(world, source)[1] == 1  # still held


@simulated()
async def test_what_was_held_of_a_topic_that_is_gone_counts_as_settled(world: World) -> None:
    peer = world.peer()
    source, target = await together(peer, 2)
    recorder = await holding(peer, source, b"1")
    await peer.client.administer(DeleteTopic(source.tenant, source.name))
    assert recorder.consumer is not None
    settle = Settle(recorder.consumer, Settlement.ACK, [0])
    await world.client.transact(Transaction(batch_of(peer, [target], b"a"), [settle], whole=False))
    assert figures(world, target) == (1, 0)
