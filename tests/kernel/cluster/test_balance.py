"""When leaders move by themselves."""

from __future__ import annotations

from kernel.cluster import kept_leaders
from kernel.cluster.leader_balance import CALM_MS, MOVE_MS, Calm, moves
from kernel.cluster.records import Facts, NodeRecord, NodeState


def test_leaders_move_once_nothing_has_changed_for_a_while_and_then_one_by_one() -> None:
    calm = Calm()
    assert not calm.look("a", 0)
    assert not calm.look("a", CALM_MS - 1)
    assert calm.look("a", CALM_MS)
    assert not calm.look("a", CALM_MS + MOVE_MS - 1)
    assert calm.look("a", CALM_MS + MOVE_MS)


def test_a_store_that_comes_and_goes_keeps_leaders_where_they_are() -> None:
    calm = Calm()
    for now_ms in range(0, 10 * CALM_MS, CALM_MS // 2):
        assert not calm.look(now_ms, now_ms)


def test_a_leader_that_is_kept_stays_as_long_as_it_is_able() -> None:
    able = {group: {1, 2} for group in range(4)}
    now = dict.fromkeys(able, 1)
    assert moves(now, able, {0, 1, 2, 3}) == []
    assert len(moves(now, able, {0, 1, 2})) == 1
    gone = {group: {2} for group in range(4)}
    assert {group for group, _, _ in moves(now, gone, {0, 1})} == {0, 1, 2, 3}


def test_what_was_kept_is_forgotten_when_stores_come_or_go() -> None:
    facts = Facts("s", "host", 1, "label")
    two = {number: NodeRecord(number, NodeState.MEMBER, facts) for number in (1, 2)}
    kept = {kept_leaders.key_of(7): (1, kept_leaders.members_of(two))}
    assert kept_leaders.kept(kept, kept_leaders.members_of(two)) == {7}
    three = {**two, 3: NodeRecord(3, NodeState.JOINING, facts)}
    assert kept_leaders.kept(kept, kept_leaders.members_of(three)) == set()
    outdated = kept_leaders.outdated(kept, kept_leaders.members_of(three))
    assert list(outdated) == [kept_leaders.key_of(7)]
