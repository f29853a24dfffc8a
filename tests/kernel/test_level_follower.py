"""Groups turn on what group 0 has decided on: when, and when not (ADR 26)."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from kernel.broker.log_commands.commands import RaiseLevel
from kernel.common.errors import Code, KernelError
from kernel.common.feature_levels import LATEST
from kernel.common.ids import METADATA_GROUP, RaftGroup
from kernel.leader_tasks.level_follower import LevelFollower
from kernel.raft.members.configuration import REMOVE, Change
from kernel.store.node import Store
from tests.simulator.cluster import Cluster
from tests.simulator.test_cluster import clustered

ONE, TWO = RaftGroup(1), RaftGroup(2)


class Leading:
    """A leader that notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.done: Callable[[object], None] = print

    def propose(
        self, change: RaiseLevel, _identity: object, done: Callable[[object], None]
    ) -> None:
        self.asked.append(change.level)
        self.done = done


class Groups:
    """A store of three groups, as `LevelFollower` asks it."""

    def __init__(self) -> None:
        self.levels = {METADATA_GROUP: 0, ONE: 0, TWO: 0}
        self.leaders = {ONE: Leading(), TWO: Leading()}
        self.led = {ONE, TWO}

    groups = property(lambda self: list(self.levels))
    data_groups = property(lambda self: [each for each in self.levels if each])
    feature_level = property(lambda self: self.levels[METADATA_GROUP])

    def serving(self, group: RaftGroup) -> Leading | None:
        return self.leaders[group] if group in self.led else None

    def replica(self, group: RaftGroup) -> SimpleNamespace:
        return SimpleNamespace(state=SimpleNamespace(feature_level=self.levels[group]))


@pytest.fixture(name="groups")
def groups_fixture() -> Groups:
    return Groups()


def follower_of(groups: Groups) -> LevelFollower:
    return LevelFollower(cast("Store", groups))


def test_nothing_is_raised_before_group_0(groups: Groups) -> None:
    follower_of(groups).look()
    assert not groups.leaders[ONE].asked


def test_groups_that_are_led_here_and_are_behind_are_raised_once(groups: Groups) -> None:
    follower = follower_of(groups)
    groups.levels |= {METADATA_GROUP: 3, TWO: 3}
    follower.look()
    follower.look()
    assert (groups.leaders[ONE].asked, groups.leaders[TWO].asked) == ([3], [])
    groups.levels[ONE] = 3
    groups.leaders[ONE].done((3,))
    follower.look()
    assert groups.leaders[ONE].asked == [3]


def test_a_raise_that_came_to_nothing_is_tried_again(groups: Groups) -> None:
    follower = follower_of(groups)
    groups.levels[METADATA_GROUP] = 2
    follower.look()
    groups.leaders[ONE].done(KernelError(Code.UNKNOWN_OUTCOME, "it does not lead any more"))
    groups.led = {TWO}
    follower.look()
    assert groups.leaders[ONE].asked == [2]
    groups.led = {ONE}
    groups.levels[METADATA_GROUP] = 4
    follower.look()
    assert groups.leaders[ONE].asked == [2, 4]


def test_a_store_without_group_0_raises_nothing(groups: Groups) -> None:
    del groups.levels[METADATA_GROUP]
    follower_of(groups).look()
    assert not groups.leaders[ONE].asked


@clustered(data_groups=2)
async def test_a_group_without_a_majority_follows_once_it_has_one(cluster: Cluster) -> None:
    """Group 0 is raised all the same, and whoever has asked hears so."""
    first = (await cluster.led(0)).number
    second, third = (each for each in cluster.nodes if each != first)
    await cluster.change(1, Change(REMOVE, third))
    cluster.nodes[second].kill()
    leader = await cluster.led(0)
    assert await leader.opened.client.raise_level(LATEST) == LATEST

    def level(node: int, group: int) -> int:
        return cluster.nodes[node].member(group).state.feature_level

    await cluster.until(lambda: {level(each, 2) for each in (first, third)} == {LATEST})
    assert level(first, 1) == 0
    await cluster.nodes[second].start()
    everything = [(node, group) for node in (first, second) for group in (0, 1, 2)]
    await cluster.until(lambda: {level(*each) for each in everything} == {LATEST})
