"""Where replicas and leaders go: by load, failure label and number, a bounded step at a time."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel.cluster.placement.planner import plan, wanted
from kernel.cluster.placement.view import (
    GroupView,
    Kind,
    Load,
    Move,
    Pace,
    Reason,
    StoreState,
)
from tests.kernel.cluster.placement.world import CAPACITY, PlacedCluster

LOAD = Load(3e6, 4e6, 1e9)


def loaded(stores: int, groups: int, **settings: int) -> PlacedCluster:
    """A cluster whose groups are loaded alike."""
    cluster = PlacedCluster(stores, groups, **settings)  # type: ignore[arg-type]  # numbers
    for number, group in cluster.groups.items():
        cluster.groups[number] = replace(group, load=LOAD)
    return cluster


def replicas_of(cluster: PlacedCluster) -> Counter[int]:
    return Counter(each for group in cluster.groups.values() for each in group.members)


def leaders_of(cluster: PlacedCluster) -> Counter[int]:
    return Counter(group.leader for group in cluster.groups.values())


# --- Load -----------------------------------------------------------------------------------


def test_an_even_cluster_is_left_alone() -> None:
    made = loaded(5, 40).calm()
    assert not made.moves
    assert not made.last.problems


def test_a_hundred_thousand_topics_made_small_are_spread_even() -> None:
    cluster = PlacedCluster(20, 200)
    cluster.load(20_000)
    assert max(cluster.spread().values()) > 0.3
    cluster.calm()
    assert max(cluster.spread().values()) < 0.15

    kept = sum(group.load.live * len(group.members) for group in cluster.groups.values())
    cluster.add_store(21)
    made = cluster.calm()
    to_it = [each for each in made.moves if each.copies and each.to == 21]
    assert sum(each.copied for each in to_it) < 1.15 * kept / 21
    assert made.copies() < 1.5 * 3 * 200 / 21
    assert made.copied() < 1.5 * kept / 21
    assert max(cluster.spread().values()) < 0.15

    cluster.set_store(5, state=StoreState.LEAVING)
    cluster.calm()
    assert 5 not in replicas_of(cluster)
    del cluster.stores[5]
    assert max(cluster.spread().values()) < 0.15
    for seed in range(3):
        cluster.waver(0.01, seed)
        assert len(cluster.calm().moves) < 4


def test_a_hot_group_has_its_leader_moved_first() -> None:
    cluster = loaded(4, 80)
    for group in cluster.groups.values():
        if group.leader == 1:
            cluster.groups[group.number] = replace(group, load=Load(3e6, 8e6, 1e9))
    first = cluster.plan()
    assert first.moves
    assert {each.kind for each in first.moves} == {Kind.LEAD}
    assert "store 1 sends" in first.moves[0].why
    cluster.calm()
    assert cluster.spread()["read"] < 0.15


def test_a_store_that_can_do_twice_as_much_has_twice_as_much() -> None:
    cluster = loaded(4, 40)
    cluster.set_store(4, capacity=Load(*(2 * each for each in CAPACITY)))
    cluster.calm()
    held = replicas_of(cluster)
    others = sum(held[each] for each in (1, 2, 3)) / 3
    assert 1.4 < held[4] / others < 2.3  # (three replicas of each group: at most 40 of 120)


def test_where_there_is_no_load_groups_are_spread_by_number() -> None:
    cluster = PlacedCluster(3, 16)
    cluster.add_store(4)
    cluster.calm()
    assert max(replicas_of(cluster).values()) - min(replicas_of(cluster).values()) <= 2
    assert max(leaders_of(cluster).values()) - min(leaders_of(cluster).values()) <= 2


def test_what_takes_little_of_the_disk_is_not_moved_for_the_disk_s_sake() -> None:
    cluster = loaded(5, 40)
    for number in range(8):
        group = cluster.groups[number * 5 + 1]
        cluster.groups[number * 5 + 1] = replace(group, load=LOAD._replace(live=1.1e9))
    assert not cluster.calm().moves


def test_a_group_that_is_too_large_for_any_store_is_said() -> None:
    cluster = loaded(4, 12)
    cluster.groups[5] = replace(cluster.groups[5], load=Load(90e6, 110e6, 1e9))
    made = cluster.calm()
    assert any("group 5 alone" in text for text in made.last.problems)


def test_of_a_store_that_is_away_nobody_says_that_it_has_more_than_it_can_do() -> None:
    """What it has room for is not known then."""
    cluster = loaded(3, 12)
    cluster.set_store(3, answers=False, capacity=CAPACITY._replace(live=1))
    assert not cluster.calm().last.problems


# --- Stores come and go ---------------------------------------------------------------------


def test_a_store_that_joins_takes_its_share_and_is_then_in() -> None:
    cluster = loaded(4, 40)
    cluster.add_store(5)
    first = cluster.plan()
    assert {each.reason for each in first.moves} == {Reason.JOINS}
    cluster.calm()
    assert cluster.stores[5].state is StoreState.IN
    assert all(abs(held - 24) <= 3 for held in replicas_of(cluster).values())


def test_a_store_that_leaves_gives_its_leaders_away_first() -> None:
    cluster = loaded(5, 20)
    cluster.set_store(2, state=StoreState.LEAVING)
    found = cluster.plan()
    led = {group.number for group in cluster.groups.values() if group.leader == 2}
    for move in found.moves:
        assert move.kind is (Kind.LEAD if move.group in led else Kind.REPLACE)
        assert move.reason is Reason.LEAVES
    cluster.calm()
    assert 2 not in replicas_of(cluster)
    assert set(Counter(len(each.members) for each in cluster.groups.values())) <= {3, 4}
    assert not cluster.plan().short


@pytest.mark.parametrize("why_not", [{"answers": False}, {"capacity": CAPACITY._replace(live=1)}])
def test_a_store_that_leaves_waits_for_one_that_is_away_or_full(why_not: dict[str, object]) -> None:
    """Fewer replicas for the time of a restart would be lost with the next store that fails."""
    cluster = loaded(4, 20)
    cluster.set_store(4, state=StoreState.LEAVING)
    for group in cluster.groups.values():
        cluster.groups[group.number] = replace(group, members=(2, 3, 4), leader=2)
    cluster.set_store(1, **why_not)
    made = cluster.calm()
    assert {tuple(sorted(each.members)) for each in cluster.groups.values()} == {(2, 3, 4)}
    assert not [each for each in made.moves if each.kind is not Kind.LEAD]
    assert made.last.problems == [
        "store 4 leaves, but no other answers and has room for 20 of its groups"
    ]
    cluster.set_store(1, answers=True, capacity=CAPACITY)
    assert not cluster.calm().last.problems
    assert {tuple(sorted(each.members)) for each in cluster.groups.values()} == {(1, 2, 3)}


def test_a_store_that_leaves_three_gives_nothing_away_and_goes() -> None:
    cluster = loaded(3, 20)
    cluster.set_store(3, state=StoreState.LEAVING)
    cluster.calm()
    assert {tuple(sorted(each.members)) for each in cluster.groups.values()} == {(1, 2)}


def test_what_a_lost_store_held_is_made_anew_before_anything_else() -> None:
    cluster = loaded(5, 20)
    cluster.set_store(1, state=StoreState.LEAVING)
    cluster.lose(3)
    found = cluster.plan()
    copies = [each for each in found.moves if each.copies]
    assert {each.reason for each in copies} == {Reason.LOST}
    lost = {each.number for each in cluster.groups.values() if 3 in each.members}
    assert set(found.short) == lost
    assert found.closed == lost
    cluster.calm()
    assert not cluster.plan().short


def test_below_r_is_said_and_there_is_nothing_to_do_about_it() -> None:
    cluster = loaded(3, 6)
    cluster.lose(3)
    cluster.calm()
    found = cluster.plan()
    assert not found.moves
    assert found.short == dict.fromkeys(cluster.groups, "2 of 3 replicas")
    assert not found.closed, "there is no group to place anything on else"
    cluster.add_store(4)
    assert cluster.plan().closed == set(cluster.groups)
    cluster.calm()
    assert not cluster.plan().short
    assert not cluster.plan().closed


def test_one_or_two_stores_lack_no_third_replica() -> None:
    cluster = loaded(1, 4)
    assert not cluster.plan().short
    cluster.add_store(2)
    cluster.calm()
    assert not cluster.plan().short
    assert {len(each.members) for each in cluster.groups.values()} == {2}
    cluster.add_store(3)
    assert len(cluster.plan().short) == len(cluster.groups), "until they have what they can have"


def test_a_group_without_a_majority_is_left_alone_and_said() -> None:
    cluster = loaded(5, 5)
    cluster.lose(1)
    cluster.lose(2)
    members = cluster.groups[5].members
    assert set(members) == {1, 2, 3}
    found = cluster.plan()
    assert "no majority" in found.short[5]
    assert 5 in found.closed
    assert all(each.group != 5 for each in found.moves)


def test_a_store_that_does_not_answer_is_given_nothing_and_robbed_of_nothing() -> None:
    cluster = loaded(5, 40)
    cluster.set_store(5, answers=False)
    cluster.add_store(6)
    made = cluster.calm()
    assert made.moves
    assert all(5 not in (each.to, each.gone) for each in made.moves)


def test_a_full_disk_is_given_nothing() -> None:
    cluster = loaded(4, 40)
    cluster.add_store(5)
    cluster.set_store(5, capacity=CAPACITY._replace(live=2.5e9))
    cluster.calm()
    assert replicas_of(cluster)[5] <= 2


def test_clusters_in_which_every_store_has_every_group_come_down_to_r() -> None:
    cluster = loaded(5, 20)
    for number, group in cluster.groups.items():
        cluster.groups[number] = replace(group, members=(1, 2, 3, 4, 5), leader=1)
    cluster.groups[0] = GroupView(0, (1, 2, 3), 1)
    cluster.calm()
    sizes = {number: len(group.members) for number, group in cluster.groups.items()}
    assert sizes == {0: 5, **dict.fromkeys(range(1, 21), 3)}
    assert max(cluster.spread().values()) < 0.2


@pytest.mark.parametrize(
    ("group", "stores", "count"),
    [(1, 5, 3), (1, 2, 2), (0, 4, 3), (0, 5, 5), (0, 9, 5), (0, 1, 1)],
)
def test_how_many_replicas_there_should_be(group: int, stores: int, count: int) -> None:
    assert wanted(group, 3, stores) == count


# --- Failure labels -------------------------------------------------------------------------


def test_replicas_are_in_as_many_hosts_and_zones_as_there_are() -> None:
    cluster = loaded(9, 90, zones=3)
    for number, group in cluster.groups.items():
        first = number % 3 + 1  # all of a group in one zone
        cluster.groups[number] = replace(group, members=(first, first + 3, first + 6), leader=first)
    made = cluster.calm()
    assert Reason.TOGETHER in {each.reason for each in made.moves}
    for group in cluster.groups.values():
        if group.number:
            assert len({cluster.stores[each].zone for each in group.members}) == 3
    assert max(cluster.spread().values()) < 0.15


def test_a_zone_of_one_small_store_does_not_get_a_replica_of_every_group() -> None:
    cluster = loaded(9, 60, zones=2)
    cluster.set_store(9, zone="tiny", capacity=Load(*(each / 4 for each in CAPACITY)))
    cluster.calm()
    assert replicas_of(cluster)[9] < 12


def test_stores_of_one_host_are_one_when_there_are_others() -> None:
    cluster = loaded(4, 12)
    cluster.set_store(2, host="h1")
    cluster.calm()
    for group in cluster.groups.values():
        assert not {1, 2} <= set(group.members)
    alone = loaded(3, 4)
    for number in alone.stores:
        alone.set_store(number, host="one")
    assert not alone.calm().moves


# --- Bounds ---------------------------------------------------------------------------------


def test_moves_are_bounded_in_number_and_bytes() -> None:
    pace = Pace(copies=3, store_copies=1, steps=2, bytes_a_second=30e6)
    cluster = loaded(8, 64)
    cluster.pace = pace
    for number in (1, 2):
        cluster.set_store(number, state=StoreState.LEAVING)
    moving: list[Move] = []
    for _ in range(400):
        found = cluster.plan(moving)
        moving += found.moves
        copies = [each for each in moving if each.copies]
        assert len(copies) <= 3
        assert sum(each.rate for each in copies) <= 30e6
        assert all(count == 1 for count in Counter(each.to for each in copies).values())
        assert len(moving) - len(copies) <= 2
        assert len({each.group for each in moving}) == len(moving)
        if not moving:
            break
        cluster.make(moving.pop(0))
    assert not {1, 2} & set(replicas_of(cluster))


def test_a_move_to_a_store_that_goes_is_cancelled() -> None:
    cluster = loaded(4, 8)
    cluster.add_store(5)
    found = cluster.plan()
    assert not cluster.plan(found.moves).cancelled
    cluster.set_store(5, state=StoreState.LEAVING)
    again = cluster.plan(found.moves)
    assert again.cancelled == [each for each in found.moves if each.to == 5]
    assert not {each.group for each in again.moves} & {each.group for each in found.moves}


def test_what_an_operator_has_chosen_stays() -> None:
    cluster = loaded(4, 24)
    for number, group in cluster.groups.items():
        if 1 in group.members:
            cluster.groups[number] = replace(group, leader=1)
    stores, groups = cluster.stores.values(), cluster.groups.values()
    stays = {each.number for each in groups if each.leader == 1}
    found = plan(stores, groups, 3, stays=stays)
    assert found.moves
    assert not stays & {each.group for each in found.moves if each.kind is Kind.LEAD}


# --- Whatever there is ----------------------------------------------------------------------

states = st.sampled_from([*([StoreState.IN] * 5), *list(StoreState)[1:]])


@st.composite
def clusters(draw: st.DrawFn) -> PlacedCluster:
    """Any stores in any state, and groups with any members among them."""
    count = draw(st.integers(1, 8))
    cluster = PlacedCluster(count, 0)
    for number in range(1, count + 1):
        cluster.set_store(
            number,
            host=draw(st.sampled_from("abcdef")),
            zone=draw(st.sampled_from(["", "x", "y"])),
            state=draw(states),
            answers=draw(st.sampled_from([True, True, True, False])),
            capacity=Load(*(each * draw(st.sampled_from([1, 2])) for each in CAPACITY)),
        )
    for number in range(draw(st.integers(0, 8))):
        members = draw(st.lists(st.integers(1, count + 1), min_size=1, max_size=5, unique=True))
        load = Load(*(draw(st.floats(0, 0.6)) * each for each in CAPACITY))
        leads = [
            each
            for each in members
            if each in cluster.stores and cluster.stores[each].state is not StoreState.GONE
        ]
        leader = draw(st.sampled_from([0, *leads]))
        cluster.groups[number] = GroupView(number, tuple(members), leader, load)
    return cluster


@settings(max_examples=100, deadline=None)
@given(clusters(), st.sampled_from([1, 3, 5]))
def test_it_comes_to_an_end_and_no_move_does_harm(cluster: PlacedCluster, replicas: int) -> None:
    cluster.replicas = replicas
    for _ in range(200):
        found = cluster.plan()
        stores, groups = list(cluster.stores.values()), list(cluster.groups.values())
        assert found == plan(stores[::-1], groups[::-1], replicas, (), cluster.pace)
        for move in found.moves:
            before = cluster.groups[move.group]
            sound = [each for each in before.members if each in cluster.stores]
            if move.to:
                assert cluster.stores[move.to].answers
                assert cluster.stores[move.to].state in (StoreState.IN, StoreState.JOINING)
            assert (move.to in before.members) == (move.kind is Kind.LEAD)
            cluster.make(move)
            after = cluster.groups[move.group].members
            assert len(after) >= min(len(sound), replicas if move.group else 3, 1)
            if move.reason is Reason.UNEVEN:
                assert len(after) == len(before.members)
        for number in found.settled:
            cluster.set_store(number, state=StoreState.IN)
        if not found.moves and not found.settled:
            return
    raise AssertionError(list(itertools.islice(found.moves, 9)))
