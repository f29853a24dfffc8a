"""Groups that are added: who makes them, when, and never twice."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace

from kernel.api.client import PutRecord
from kernel.api.model import TopicOptions
from kernel.cluster import added_groups
from kernel.cluster.added_groups import (
    AddedGroup,
    GroupState,
    begun,
    closed,
    given_up,
    read,
    wanted,
)
from kernel.cluster.births import Births
from kernel.cluster.growing import AT_ONCE, Growing
from kernel.cluster.messages import Goal, StepProgress, Towards
from kernel.cluster.records import Facts, NodeRecord, NodeState
from kernel.common.errors import Code, KernelError
from kernel.common.feature_levels import LATEST
from kernel.common.ids import ADDED_FIRST, METADATA_GROUP, RaftGroup
from kernel.common.limits import ADDED_GROUPS_MAX, DATA_GROUPS_MAX
from kernel.log.format.record import BATCH_GROUPS_MAX
from kernel.raft.messages import Membership
from kernel.store.raft_groups.leaving import LeaveGroup
from tests.simulator.world import World, simulated

FIRST = RaftGroup(ADDED_FIRST)
DIRECTORY = "this one"


def store(number: int, state: NodeState = NodeState.MEMBER, directory: str = "") -> NodeRecord:
    facts = Facts(directory or f"disk-{number}", "h", 1, f"host-{number}")
    return NodeRecord(number, state, facts)


STORES = {number: store(number) for number in (1, 2, 3)}


def group(number: int, state: GroupState = GroupState.WANTED, at: int = 1) -> AddedGroup:
    return AddedGroup(number, state, at, f"disk-{at}")


def added(*groups: AddedGroup) -> dict[int, tuple[int, AddedGroup]]:
    return {each.number: (1, each) for each in groups}


# --- What the register says -----------------------------------------------------------------------


def test_a_group_begins_in_the_store_that_has_the_fewest_of_those_that_can() -> None:
    stores = {**STORES, 3: store(3, NodeState.JOINING), 4: store(4)}
    found = wanted({}, stores, {1, 2, 3}, [(1, 2), (1,), (2, 1)], 3)
    assert [(each.number, each.store) for each in found] == [(65, 2), (66, 1), (67, 2)]
    assert {each.directory for each in found} == {"disk-1", "disk-2"}
    after = wanted(added(group(65, GroupState.LOST)), STORES, {1, 2, 3}, [], 1)
    assert [each.number for each in after] == [66], "no number is given twice"
    with pytest.raises(KernelError) as caught:
        wanted({}, STORES, set(), [], 1)
    assert caught.value.code is Code.UNAVAILABLE


def test_there_are_so_many_groups_and_no_more() -> None:
    assert len(wanted({}, STORES, STORES, [], ADDED_GROUPS_MAX)) == ADDED_GROUPS_MAX
    there = added(*(group(ADDED_FIRST + each) for each in range(ADDED_GROUPS_MAX - 1)))
    assert [each.number for each in wanted(there, STORES, STORES, [], 1)] == [224]
    assert 1 + DATA_GROUPS_MAX + ADDED_GROUPS_MAX <= BATCH_GROUPS_MAX, "as many as a journal takes"
    for count, code in ((2, Code.LIMIT_EXCEEDED), (0, Code.INVALID_ARGUMENT)):
        with pytest.raises(KernelError) as caught:
            wanted(there, STORES, STORES, [], count)
        assert caught.value.code is code


def test_what_has_not_grown_takes_no_queues_and_what_cannot_be_read_is_none() -> None:
    groups = [group(65 + number, state) for number, state in enumerate(GroupState)]
    assert closed(added(*groups)) == {65, 66, 67}
    good = {added_groups.key_of(each.number): (3, added_groups.encode(each)) for each in groups}
    strange = {"cluster/group/00099": (1, b"\xc1"), "cluster/node/00001": good[next(iter(good))]}
    assert read({**good, **strange}) == {each.number: (3, each) for each in groups}


def test_a_group_whose_store_has_gone_before_it_was_there_is_given_up() -> None:
    groups = added(group(65), group(66, GroupState.GROWING), group(67, at=2))
    assert given_up(groups, STORES) == []
    wiped = {**STORES, 1: store(1, directory="another")}
    assert given_up(groups, wiped) == [(1, group(65, GroupState.LOST))]
    assert [each.number for _, each in given_up(groups, {1: STORES[1]})] == [67]


def test_no_group_gets_members_before_its_store_has_said_that_it_is_there() -> None:
    groups = added(*(group(65 + number, state) for number, state in enumerate(GroupState)))
    assert begun([0, 1, *groups, 99], groups) == [0, 1, 67, 68]


# --- A store --------------------------------------------------------------------------------------


async def put(world: World, state: GroupState, directory: str = DIRECTORY) -> None:
    record = AddedGroup(FIRST, state, 1, directory)
    change = PutRecord(added_groups.key_of(FIRST), added_groups.encode(record))
    await world.client.administer(change)


@simulated()
async def test_the_store_that_is_named_makes_a_group_once_and_has_it_after_a_power_loss(
    world: World,
) -> None:
    Births(world.opened.store, world.client, "another one")
    await put(world, GroupState.WANTED)
    await asyncio.sleep(1)
    assert FIRST not in world.opened.store.groups, "a wiped store comes with another directory"
    births = Births(world.opened.store, world.client, DIRECTORY)
    births.look()
    await asyncio.sleep(1)
    member = world.opened.store.member(FIRST)
    assert (member.serves, member.state.membership) == (True, Membership((1,)))
    topic = await world.peer().topic("t", TopicOptions(queues=5))
    assert FIRST in {ref.group for ref in topic.queues}
    await world.peer().publish(topic, *[b"%d" % number for number in range(20)])

    await world.crash()  # no snapshot of it yet: its only member is found in its log
    await world.start()
    assert FIRST in world.opened.store.groups
    term = world.opened.store.member(FIRST).core.term
    Births(world.opened.store, world.client, DIRECTORY).look()
    await asyncio.sleep(1)
    assert world.opened.store.member(FIRST).core.term == term, "it is not made again"
    assert world.figures(await world.peer().topic("t", TopicOptions(queues=5))).ready == 20


@simulated()
async def test_a_group_that_others_have_waits_to_be_given_a_member_here(world: World) -> None:
    births, opened = Births(world.opened.store, world.client, DIRECTORY), world.opened.store
    for state, known in ((GroupState.LOST, False), (GroupState.GROWING, True)):
        await put(world, state)
        await asyncio.sleep(1)
        births.look()
        assert (FIRST in opened.groups) is known
    assert not opened.holds(FIRST), "made by nobody here, although this store is named"
    assert opened.standing(FIRST) == (0, 0)
    assert FIRST not in opened.consensus.healing.silent
    assert opened.has_nothing_of(FIRST)


@simulated()
async def test_who_has_lost_group_0_makes_no_group_and_may_have_had_what_it_hears_of(
    world: World,
) -> None:
    store = world.opened.store
    births = Births(store, world.client, DIRECTORY)
    store.consensus.healing.lost_with_the_others(METADATA_GROUP)
    await put(world, GroupState.WANTED)
    await asyncio.sleep(1)
    births.look()
    assert FIRST not in store.groups
    await put(world, GroupState.GROWN)
    await asyncio.sleep(1)
    births.look()
    assert FIRST in store.consensus.healing.silent, "it gives no vote"
    assert FIRST in store.journal.damaged, "also after a restart"
    # If it never was a member, nobody would ever heal it: it has to be told to leave.
    assert not store.has_nothing_of(FIRST)
    await store.leave(LeaveGroup(FIRST, 1, 5, LATEST))
    assert store.has_nothing_of(FIRST)
    assert store.consensus.healing.lost == [METADATA_GROUP]
    assert FIRST in store.consensus.healing.silent


@simulated(data_groups=DATA_GROUPS_MAX)
async def test_a_store_serves_as_many_groups_as_there_may_be_also_after_a_power_loss(
    world: World,
) -> None:
    births = Births(world.opened.store, world.client, DIRECTORY)
    for number in range(ADDED_FIRST, ADDED_FIRST + ADDED_GROUPS_MAX):
        record = AddedGroup(number, GroupState.WANTED, 1, DIRECTORY)
        change = PutRecord(added_groups.key_of(number), added_groups.encode(record))
        await world.client.administer(change)
    births.look()
    groups = DATA_GROUPS_MAX + ADDED_GROUPS_MAX
    await asyncio.sleep(1)
    topic = await world.peer().topic("t", TopicOptions(queues=groups))
    await world.peer().publish(topic, *[b"x"] * groups)
    assert {ref.group for ref in topic.queues} == set(range(ADDED_FIRST + ADDED_GROUPS_MAX)) - {0}
    await world.crash()
    await world.start()
    store = world.opened.store
    assert sum(store.serving(each) is not None for each in store.groups) == groups + 1
    again = await world.peer().topic("t", TopicOptions(queues=groups))
    assert world.figures(again).ready == groups


# --- The manager ----------------------------------------------------------------------------------


class Steps:
    """What a manager writes and asks."""

    def __init__(self, *unserved: int) -> None:
        self.unserved = unserved
        self.put: list[AddedGroup] = []
        self.voters: set[tuple[int, int]] = set()
        self.asked: list[Towards] = []
        self.growing = Growing(self._put, self._ask)

    async def _put(self, group: AddedGroup, _version: int) -> None:
        self.put.append(group)

    async def _ask(self, asked: Towards) -> StepProgress:
        self.asked.append(asked)
        if asked.group in self.unserved:
            raise KernelError(Code.UNAVAILABLE, "nobody leads it")
        if asked.goal is Goal.VOTER:
            self.voters.add((asked.group, asked.node))
        return StepProgress(asked.goal is Goal.VOTER or asked.node != 3, "is catching up")

    async def look(
        self,
        groups: Sequence[AddedGroup],
        replicas: int = 0,
        stores: Mapping[int, NodeRecord] = STORES,
    ) -> None:
        await self.growing.look(added(*groups), stores, replicas, {})


async def test_a_group_grows_once_its_store_serves_it_and_takes_queues_once_all_vote() -> None:
    steps = Steps(66)
    await steps.look([group(65), group(66), group(67, GroupState.GROWN)])
    assert steps.put == [group(65, GroupState.GROWING)]
    assert steps.growing.told[66] == "nobody leads it"
    leaving = {**STORES, 3: store(3, NodeState.LEAVING)}
    await steps.look([group(65, at=3)], stores=leaving)
    assert steps.growing.told == {65: "store 3 leaves"}
    await steps.look([replace(group(65), state=GroupState.GROWING)])
    assert steps.voters == {(65, 1), (65, 2)}
    assert steps.growing.told == {65: "store 3 is catching up"}
    assert len(steps.put) == 1
    await steps.look([group(65, GroupState.GROWING)], replicas=3)
    assert steps.growing.told == {65: "has 0 of 3 replicas"}, "the planner's business"


async def test_many_groups_take_turns() -> None:
    groups = [group(ADDED_FIRST + number) for number in range(3 * AT_ONCE)]
    steps = Steps(*(each.number for each in groups))
    for turn in range(3):
        await steps.look(groups)
        assert len(steps.asked) == AT_ONCE * (turn + 1)
    assert {each.group for each in steps.asked} == {each.number for each in groups}
