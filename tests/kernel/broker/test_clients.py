"""Repeats of a gateway's batches: answered from the table, as long as they are remembered."""

from __future__ import annotations

import pytest

from kernel.api.model import Route, RouterInfo, RouterOptions, TopicInfo, TopicOptions
from kernel.broker.group_state.state import GroupState
from kernel.broker.log_commands import commands
from kernel.broker.log_commands import tree_commands as tree
from kernel.broker.machine import Machine
from kernel.broker.snapshots.snapshot import dump, load, state_hash
from kernel.common.errors import Code, KernelError
from kernel.common.ids import OUTBOX_CLIENT, LogIndex, RaftGroup, TopicId
from kernel.common.limits import RESULTS_KEPT_MS, RESULTS_KEPT_PER_CLIENT
from kernel.log.format import entry as entries
from kernel.store.recovery.replaying import Silent
from tests.simulator.world import World, simulated

MINUTE_MS = 60_000


class Nothing:
    """`observer.Retention` of a group without messages."""

    def retain(self, group: int, index: int, references: int) -> None:
        raise AssertionError("there are no messages")

    def release(self, group: int, index: int, references: int) -> None:
        raise AssertionError("there are no messages")


class Group:
    """A state machine that counts how often each batch was executed."""

    def __init__(self) -> None:
        self.state = GroupState(RaftGroup(0))
        self.use(self.state)

    def use(self, state: GroupState) -> None:
        self.state = state
        self.machine = Machine(state, Nothing(), Silent())

    def apply(self, time_ms: int, *batches: tuple[int, int, int]) -> list[object]:
        """Apply an entry of (client, epoch, sequence) batches, each of which sets a record; its
        result is the number of times that it was set.
        """
        encoded = [
            entries.encode_batch(
                entries.EntryBatch(
                    *identity,
                    (commands.encode_control(commands.PutRecord(str(identity), b"x", None)),),
                )
            )
            for identity in batches
        ]
        body = entries.build(time_ms, encoded, (), ())
        results = self.machine.apply(LogIndex(self.state.applied + 1), 1, body)
        return [each[0] for each in results if isinstance(each, tuple)]

    def carry_out(self, *changes: commands.Control) -> list[object]:
        """Apply each in a batch of its own, of one client."""
        encoded = [
            entries.encode_batch(
                entries.EntryBatch(7, 1, number, (commands.encode_control(change),))
            )
            for number, change in enumerate(changes, 1)
        ]
        body = entries.build(1, encoded, (), ())
        results = self.machine.apply(LogIndex(self.state.applied + 1), 1, body)
        return [each[0] for each in results if isinstance(each, tuple)]

    def known(self) -> set[tuple[int, int]]:
        return {*self.state.clients, *self.state.outbox_clients}


def test_a_repeat_is_not_executed_and_hears_the_same() -> None:
    group = Group()
    assert group.apply(1, (7, 1, 1), (7, 1, 2)) == [1, 1]
    assert group.apply(2, (7, 1, 1), (8, 1, 1), (7, 1, 2)) == [1, 1, 1]


def test_what_a_batch_came_to_is_the_same_behind_a_snapshot() -> None:
    group = Group()
    changes: list[commands.Control] = [
        commands.PutRecord("a", b"x", 0),
        commands.PutRecord("a", b"x", 0),
        commands.PutRouter("t", "r", RouterOptions(), True),
        commands.PutRouter("t", "r", RouterOptions(), True),
        commands.PutRoute("t", "r", Route(topic="q")),
        commands.DeleteRoute("t", "r", Route(topic="q")),
        commands.PutTopic("t", "q", TopicOptions(), {}, True, TopicId(1 << 8), (0,)),
        tree.Listed((1, -1)),
    ]
    first = group.carry_out(*changes)
    assert isinstance(first[1], KernelError)
    assert isinstance(first[3], KernelError)
    before = state_hash(group.state)
    group.use(load(list(dump(group.state))))
    assert state_hash(group.state) == before
    second = group.carry_out(*changes)
    for old, new in zip(first, second, strict=True):
        if isinstance(old, KernelError):
            assert isinstance(new, KernelError)
            assert (new.code, new.message) == (old.code, old.message)
        elif isinstance(old, TopicInfo | RouterInfo):
            assert new is None  # what it has made is there
        else:
            assert new == old


def test_batches_may_come_in_any_order() -> None:
    group = Group()
    assert group.apply(1, (7, 1, 5), (7, 1, 3), (7, 1, 4)) == [1, 1, 1]
    assert group.apply(2, (7, 1, 3), (7, 1, 4), (7, 1, 5), (7, 1, 1)) == [1, 1, 1, 1]


def test_a_repeat_beyond_the_table_is_of_unknown_outcome() -> None:
    group = Group()
    for number in range(1, RESULTS_KEPT_PER_CLIENT + 2):
        group.apply(1, (7, 1, number))
    (result,) = group.apply(1, (7, 1, 1))
    assert isinstance(result, KernelError)
    assert result.code is Code.UNKNOWN_OUTCOME
    assert group.apply(1, (7, 1, 2)) == [1]


def test_a_new_epoch_forgets_the_old_one() -> None:
    group = Group()
    group.apply(1, (7, 1, 1), (8, 1, 1))
    group.apply(2, (7, 2, 1))
    assert group.known() == {(7, 2), (8, 1)}


def test_a_client_is_forgotten_so_long_after_its_last_batch() -> None:
    group = Group()
    group.apply(1, (7, 1, 1), (OUTBOX_CLIENT | 3, 1, 1))
    group.apply(5 * MINUTE_MS, (8, 1, 1))
    group.apply(RESULTS_KEPT_MS, (9, 1, 1))
    assert group.known() == {(7, 1), (8, 1), (9, 1), (OUTBOX_CLIENT | 3, 1)}
    group.apply(RESULTS_KEPT_MS + 1, (9, 1, 2))
    assert group.known() == {(8, 1), (9, 1), (OUTBOX_CLIENT | 3, 1)}
    # Used again in time, it stays as long after that.
    group.apply(RESULTS_KEPT_MS + 2, (8, 1, 2))
    group.apply(2 * RESULTS_KEPT_MS + 1, (9, 1, 3))
    assert group.known() == {(8, 1), (9, 1), (OUTBOX_CLIENT | 3, 1)}
    group.apply(2 * RESULTS_KEPT_MS + 2, (9, 1, 4))
    assert group.known() == {(9, 1), (OUTBOX_CLIENT | 3, 1)}


def test_an_outbox_is_never_forgotten() -> None:
    group = Group()
    assert group.apply(1, (OUTBOX_CLIENT | 3, 1, 5)) == [1]
    group.apply(100 * RESULTS_KEPT_MS, (8, 1, 1))
    assert group.apply(200 * RESULTS_KEPT_MS, (OUTBOX_CLIENT | 3, 1, 5)) == [1]


@pytest.mark.parametrize("split_at", range(6))
def test_a_replica_that_starts_from_a_snapshot_forgets_at_the_same_time(split_at: int) -> None:
    steps = [
        (1, (30, 1, 1)),
        (2, (10, 1, 1)),
        (2, (20, 1, 1)),
        (MINUTE_MS, (30, 1, 2)),
        (RESULTS_KEPT_MS + 2, (40, 1, 1)),
        (RESULTS_KEPT_MS + MINUTE_MS, (40, 1, 2)),
    ]
    straight, restored = Group(), Group()
    for number, (time_ms, identity) in enumerate(steps):
        if number == split_at:
            restored.use(load(dump(restored.state)))
        straight.apply(time_ms, identity)
        restored.apply(time_ms, identity)
        assert state_hash(straight.state) == state_hash(restored.state)
    assert straight.known() == {(40, 1)}


@simulated()
async def test_processes_that_are_gone_leave_nothing_for_ever(world: World) -> None:
    for _ in range(12):
        peer = world.peer()
        topic = await peer.topic("work")
        await peer.publish(topic, b"x")
        world.clock.wall_offset_ms += 5 * MINUTE_MS
        await world.crash()
    topic = await world.peer().topic("work")
    group = topic.queues[0].group
    assert len(world.opened.store.replica(group).state.clients) <= 4
