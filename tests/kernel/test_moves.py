"""Tasks that move messages on: dead letters back to where they came from, or to another topic."""

from __future__ import annotations

import asyncio

import pytest

from kernel.api import message as messages
from kernel.api import moves
from kernel.api.client import (
    CancelMove,
    DeleteTopic,
    LeaseChange,
    LeaseVerb,
    ReceiveSpec,
    Settlement,
    StartMove,
)
from kernel.api.message import Flag
from kernel.api.model import (
    DEFAULT_GROUP,
    DEFAULT_TENANT,
    DeadLetter,
    GroupOptions,
    TopicInfo,
    TopicOptions,
)
from kernel.api.moves import BACK_TO_MAX, KEPT_MAX, PREFIX, MoveFailure, MoveState, MoveTask
from kernel.api.origins import INTERNAL
from kernel.broker.group_state import usage
from kernel.common.errors import Code, KernelError
from kernel.leader_tasks import mover
from kernel.leader_tasks.leader_tasks import LOOK_AGAIN_SECONDS
from tests.simulator.peer import Draft
from tests.simulator.world import World, simulated

TO_DEAD = GroupOptions(dead_letter=DeadLetter(None, "dead"))


def ready(world: World, name: str) -> int:
    topic = world.client.topic(DEFAULT_TENANT, name)
    assert topic is not None
    return world.figures(topic, DEFAULT_GROUP).ready


def listed(world: World, name: str = "dead") -> list[MoveTask]:
    return moves.tasks(world.client.records(PREFIX), DEFAULT_TENANT, name)


async def move(world: World, **how: object) -> str:
    change = StartMove(DEFAULT_TENANT, "dead", DEFAULT_GROUP, **how)  # type: ignore[arg-type]
    ident = await world.client.administer(change)
    assert isinstance(ident, str)
    return ident


async def ended(world: World, seconds: float = 30) -> MoveTask:
    """The newest task, once it has ended."""
    async with asyncio.timeout(seconds):
        while listed(world)[0].state is MoveState.RUNNING:
            await asyncio.sleep(0.1)
    await world.settle_down()
    return listed(world)[0]


async def dead_letters(
    world: World, *sources: str, count: int = 3, options: GroupOptions = TO_DEAD
) -> TopicInfo:
    """`count` messages of each source, dead-lettered to `dead`; their key is the source's."""
    peer = world.peer()
    dead = await peer.topic("dead", None, GroupOptions(ordered=options.ordered))
    for name in sources:
        topic = await peer.topic(name, None, options)
        drafts = [Draft(f"{name} {n}".encode(), key=name.encode()) for n in range(count)]
        await peer.publish(topic, *drafts)
        recorder = peer.attach(topic, credit=count)
        while recorder.held or len(recorder.got) < count:
            await recorder.wait_for(len(recorder.got) + (not recorder.held))
            await recorder.settle(Settlement.DEAD_LETTER, *list(recorder.held.values()))
        recorder.cancel()
    await world.settle_down()
    assert ready(world, "dead") == count * len(sources)
    return dead


async def bodies(world: World, name: str) -> list[bytes]:
    topic = world.client.topic(DEFAULT_TENANT, name)
    assert topic is not None
    recorder = world.peer().attach(topic, credit=1_000)
    await asyncio.sleep(0.1)
    await recorder.ack()
    recorder.cancel()
    return recorder.bodies


@simulated()
async def test_dead_letters_go_back_to_where_each_came_from_as_new_messages(world: World) -> None:
    dead = await dead_letters(world, "a", "b")
    dead_consumer = world.peer().attach(dead, credit=6)
    await dead_consumer.wait_for(6)
    await dead_consumer.settle(Settlement.RETURN, *list(dead_consumer.held.values()))
    dead_consumer.cancel()
    await asyncio.sleep(100)
    await move(world)
    task = await ended(world)
    assert (task.state, task.to_move, task.moved) == (MoveState.COMPLETED, 6, 6)
    assert ready(world, "dead") == 0
    topic = world.client.topic(DEFAULT_TENANT, "a")
    assert topic is not None
    recorder = world.peer().attach(topic, credit=10)
    await recorder.wait_for(3)
    assert recorder.bodies == [b"a 0", b"a 1", b"a 2"]
    assert recorder.attempts == [1, 1, 1]
    assert not {each.uid for each in recorder.got} & {each.uid for each in dead_consumer.got}
    message = messages.decode(recorder.got[0].slot)
    assert not message.flags & Flag.DEAD_LETTER
    assert message.published_ms >= world.clock.wall_ms() - 10_000
    await recorder.ack()
    assert await bodies(world, "b") == [b"b 0", b"b 1", b"b 2"]
    await world.settle_down()
    assert world.opened.store.journal.statistics().live_entries == 0


@simulated()
async def test_a_dead_letter_goes_back_only_where_whoever_asks_may_write(world: World) -> None:
    await dead_letters(world, "a", "b")
    await move(world, back_to=("a",))
    task = await ended(world)
    assert (task.state, task.failure, task.moved) == (MoveState.FAILED, MoveFailure.NO_ORIGIN, 3)
    assert (ready(world, "a"), ready(world, "b"), ready(world, "dead")) == (3, 0, 3)
    await move(world, back_to=("b", "c"))
    assert (await ended(world)).state is MoveState.COMPLETED
    assert (ready(world, "b"), ready(world, "dead")) == (3, 0)


@simulated()
async def test_a_task_whose_asker_has_gone_before_its_record_was_written_runs_all_the_same(
    world: World,
) -> None:
    """Seed 80384 of the swarm: it was there for ever, and nobody ran it."""
    await dead_letters(world, "a")
    asked = asyncio.ensure_future(move(world))
    write = world.client.moves._write

    async def written(task: MoveTask) -> None:
        asked.cancel()
        await write(task)

    world.client.moves._write = written  # type: ignore[method-assign]
    await asyncio.gather(asked, return_exceptions=True)
    world.client.moves._write = write  # type: ignore[method-assign]
    assert asked.cancelled()
    await asyncio.sleep(1)
    assert [each.state for each in listed(world)] == [MoveState.RUNNING]
    task = await ended(world, 2 * LOOK_AGAIN_SECONDS)
    assert (task.state, ready(world, "a"), ready(world, "dead")) == (MoveState.COMPLETED, 3, 0)


@simulated()
async def test_a_task_whose_record_cannot_be_written_for_a_while_goes_on(world: World) -> None:
    await dead_letters(world, "a", count=10)
    write, failures = world.client.moves._write, 0

    async def refused(task: MoveTask) -> None:
        nonlocal failures
        failures += 1
        raise KernelError(Code.TIMEOUT, "group 0 has no leader")

    await move(world, per_second=2)
    world.client.moves._write = refused  # type: ignore[method-assign]
    await asyncio.sleep(5)
    assert failures == 1
    world.client.moves._write = write  # type: ignore[method-assign]
    task = await ended(world, 2 * LOOK_AGAIN_SECONDS)
    assert task.state is MoveState.COMPLETED
    assert (ready(world, "a"), ready(world, "dead")) == (10, 0)


@simulated()
async def test_to_another_topic_and_what_is_held_or_delayed_stays(world: World) -> None:
    dead = await dead_letters(world, "a", count=4)
    peer = world.peer()
    await peer.topic("other")
    spec = ReceiveSpec(dead, DEFAULT_GROUP, messages=2, lease_ms=600_000)
    tokens = (await world.client.receive(spec)).tokens
    later = LeaseChange(tokens[1], LeaseVerb.RETURN, 500_000)
    assert await world.client.settle_leases(dead, DEFAULT_GROUP, [later]) == [None]
    await move(world, destination="other")
    task = await ended(world)
    assert (task.state, task.to_move, task.moved) == (MoveState.COMPLETED, 2, 2)
    assert await bodies(world, "other") == [b"a 2", b"a 3"]
    figures = world.figures(dead, DEFAULT_GROUP)
    assert (figures.ready, figures.leased, figures.delayed) == (0, 1, 1)


@simulated()
async def test_not_more_go_in_a_second_than_asked_for_and_what_comes_later_stays(
    world: World,
) -> None:
    await dead_letters(world, "a", count=10)
    await move(world, per_second=2)
    await asyncio.sleep(0.5)
    assert (ready(world, "dead"), ready(world, "a")) == (8, 2)
    dead = world.client.topic(DEFAULT_TENANT, "dead")
    assert dead is not None
    await world.peer().publish(dead, b"late")
    await asyncio.sleep(2)
    assert (ready(world, "dead"), ready(world, "a")) == (5, 6)
    assert listed(world)[0].moved == 6
    assert (await ended(world)).moved == 10
    assert await bodies(world, "dead") == [b"late"]


@simulated()
async def test_not_more_go_in_all_than_asked_for(world: World) -> None:
    await dead_letters(world, "a", count=4)
    await move(world, messages_max=3, per_second=2)
    task = await ended(world)
    assert (task.state, task.to_move, task.moved) == (MoveState.COMPLETED, 3, 3)
    assert (ready(world, "a"), ready(world, "dead")) == (3, 1)
    await move(world, messages_max=3)
    assert (await ended(world)).moved == 1


@simulated()
async def test_one_task_runs_for_a_topic_and_it_can_be_cancelled(world: World) -> None:
    await dead_letters(world, "a", count=10)
    ident = await move(world, per_second=2)
    await asyncio.sleep(1.5)
    with pytest.raises(KernelError) as refused:
        await move(world)
    assert refused.value.code is Code.IN_USE
    cancel = CancelMove(DEFAULT_TENANT, "dead", ident)
    assert await world.client.administer(cancel) == 4
    (task,) = listed(world)
    assert (task.id, task.state, task.moved) == (ident, MoveState.CANCELLED, 4)
    await asyncio.sleep(3)
    assert (ready(world, "dead"), ready(world, "a")) == (6, 4)
    for name, code in ((ident, Code.NOT_ALLOWED), ("other", Code.NOT_FOUND)):
        with pytest.raises(KernelError) as refused:
            await world.client.administer(CancelMove(DEFAULT_TENANT, "dead", name))
        assert refused.value.code is code
    await move(world)
    assert (await ended(world)).moved == 6
    assert ready(world, "a") == 10


@pytest.mark.parametrize("crash", [True, False], ids=["crash", "restart"])
@simulated()
async def test_a_task_goes_on_after_a_restart_and_moves_nothing_twice(
    world: World, crash: bool
) -> None:
    await dead_letters(world, "a", count=20)
    await move(world, per_second=4)
    await asyncio.sleep(2.5)
    await (world.crash() if crash else world.restart())
    task = await ended(world)
    assert task.state is MoveState.COMPLETED
    assert ready(world, "dead") == 0
    assert sorted(await bodies(world, "a")) == sorted(f"a {n}".encode() for n in range(20))


@simulated()
async def test_a_crash_at_any_moment_moves_each_message_once(world: World) -> None:
    await dead_letters(world, "a", count=60)
    await move(world, per_second=20)
    for tenth in range(25):
        await asyncio.sleep(0.001 * tenth)
        await world.crash(seed=tenth)
    await ended(world)
    await asyncio.sleep(2)
    assert ready(world, "dead") == 0
    assert sorted(await bodies(world, "a")) == sorted(f"a {n}".encode() for n in range(60))


@simulated()
async def test_a_task_fails_with_a_reason_and_leaves_what_it_cannot_move(world: World) -> None:
    dead = await dead_letters(world, "a", "b", count=2)
    await world.peer().publish(dead, b"never a letter")
    await world.client.administer(DeleteTopic(DEFAULT_TENANT, "b"))
    await move(world)
    task = await ended(world)
    assert (task.state, task.failure) == (MoveState.FAILED, MoveFailure.NO_DESTINATION)
    assert (task.moved, ready(world, "a"), ready(world, "dead")) == (2, 2, 3)
    await world.peer().topic("b")
    await move(world)
    task = await ended(world)
    assert (task.state, task.failure) == (MoveState.FAILED, MoveFailure.NO_ORIGIN)
    assert (task.moved, ready(world, "b")) == (2, 2)
    assert await bodies(world, "dead") == [b"never a letter"]
    await move(world)
    assert (await ended(world)).state is MoveState.COMPLETED


@simulated()
async def test_a_deleted_source_ends_its_task_and_is_forgotten_at_the_next_start(
    world: World,
) -> None:
    await dead_letters(world, "a", count=10)
    await move(world, per_second=1)
    await asyncio.sleep(0.5)
    await world.client.administer(DeleteTopic(DEFAULT_TENANT, "dead"))
    task = await ended(world)
    assert (task.state, task.failure) == (MoveState.FAILED, MoveFailure.NO_SOURCE)
    await world.restart()
    assert listed(world) == []


@simulated()
async def test_a_key_that_somebody_holds_stays_and_follows_in_order(world: World) -> None:
    ordered = GroupOptions(dead_letter=DeadLetter(None, "dead"), ordered=True)
    dead = await dead_letters(world, "a", "b", options=ordered)
    spec = ReceiveSpec(dead, DEFAULT_GROUP, messages=1, lease_ms=5_000)
    await world.client.receive(spec)
    await move(world)
    await asyncio.sleep(2)
    assert (ready(world, "a"), ready(world, "b")) == (0, 3)
    assert (await ended(world)).moved == 5
    assert ready(world, "a") == 2  # what was held when it began is none of the task's
    await move(world)
    await ended(world)
    assert await bodies(world, "b") == [b"b 0", b"b 1", b"b 2"]


@simulated()
async def test_a_message_that_comes_back_is_no_duplicate_of_itself(world: World) -> None:
    peer = world.peer()
    await peer.topic("dead")
    topic = await peer.topic("work", TopicOptions(deduplication_ms=300_000), TO_DEAD)
    await peer.publish(topic, Draft(b"x", deduplication_id=b"1"))
    recorder = peer.attach(topic, credit=1)
    await recorder.wait_for(1)
    await recorder.settle(Settlement.DEAD_LETTER, 0)
    await world.settle_down()
    await move(world)
    await ended(world)
    assert ready(world, "work") == 1


@simulated()
async def test_moves_are_the_servers_own_traffic(world: World) -> None:
    await dead_letters(world, "a", count=3)
    await move(world)
    await ended(world)
    found = [
        each
        for replica in world.opened.store.replicas()
        for each in usage.counts(replica.state)
        if each.topic == "a" and each.verb is usage.Verb.ROUTED and each.origin == INTERNAL
    ]
    assert [each.messages for each in found] == [3]
    published = [
        each.origin
        for replica in world.opened.store.replicas()
        for each in usage.counts(replica.state)
        if each.topic == "a" and each.verb is usage.Verb.PUBLISHED
    ]
    assert INTERNAL not in published


@simulated()
async def test_what_a_task_may_not_be_asked_for(world: World) -> None:
    await dead_letters(world, "a", count=1)
    for change, code in (
        (StartMove(DEFAULT_TENANT, "none", DEFAULT_GROUP), Code.NOT_FOUND),
        (StartMove(DEFAULT_TENANT, "dead", "none"), Code.NOT_FOUND),
        (StartMove(DEFAULT_TENANT, "dead", DEFAULT_GROUP, "none"), Code.NOT_FOUND),
        (StartMove(DEFAULT_TENANT, "dead", DEFAULT_GROUP, None, 0), Code.INVALID_ARGUMENT),
        (StartMove(DEFAULT_TENANT, "dead", DEFAULT_GROUP, None, 501), Code.INVALID_ARGUMENT),
        (StartMove(DEFAULT_TENANT, "dead", DEFAULT_GROUP, messages_max=0), Code.INVALID_ARGUMENT),
        (
            StartMove(DEFAULT_TENANT, "dead", DEFAULT_GROUP, back_to=("a",) * (BACK_TO_MAX + 1)),
            Code.LIMIT_EXCEEDED,
        ),
    ):
        with pytest.raises(KernelError) as refused:
            await world.client.administer(change)
        assert refused.value.code is code
    assert listed(world) == []


@simulated()
async def test_tasks_and_their_records_are_bounded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await dead_letters(world, "a", count=2)
    for _ in range(KEPT_MAX + 3):
        await move(world)
        await ended(world)
    assert len(listed(world)) == KEPT_MAX
    monkeypatch.setattr(mover, "RUNNING_MAX", 0)
    with pytest.raises(KernelError) as refused:
        await move(world)
    assert refused.value.code is Code.LIMIT_EXCEEDED


@simulated()
async def test_a_slow_way_on_holds_a_task_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mover, "OUTBOX_MAX", 0)
    await dead_letters(world, "a", count=2)
    await move(world)
    await asyncio.sleep(3)
    assert (ready(world, "dead"), listed(world)[0].state) == (2, MoveState.RUNNING)
    monkeypatch.undo()
    assert (await ended(world)).moved == 2
