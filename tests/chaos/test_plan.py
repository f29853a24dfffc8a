"""Plans follow from their seed."""

from __future__ import annotations

from tests.chaos.plan import CHANGES, DURING, PAUSE_SECONDS, Kind, plan

KINDS = list(Kind)


def test_a_seed_makes_one_plan() -> None:
    assert plan(7, 20, KINDS, 2) == plan(7, 20, list(reversed(KINDS)), 2)
    assert plan(7, 20, KINDS, 2) != plan(8, 20, KINDS, 2)


def test_every_kind_comes_before_any_comes_again() -> None:
    made = plan(1, 2 * len(KINDS), KINDS, 2)
    assert {each.kind for each in made[: len(KINDS)]} == set(KINDS)
    assert {each.kind for each in made[len(KINDS) :]} == set(KINDS)


def test_groups_and_times_are_within_bounds() -> None:
    made = plan(3, 200, KINDS, 2)
    assert {each.group for each in made} == {0, 1, 2}
    assert {each.seconds for each in made if each.kind is Kind.PAUSE_LEADER} == {PAUSE_SECONDS}
    cuts = [each.seconds for each in made if each.kind is Kind.CUT_STORES]
    assert min(cuts) >= 3
    assert max(cuts) <= 8


def test_changes_come_by_themselves_and_with_each_fault_in_their_middle() -> None:
    made = plan(4, 400, KINDS, 2)
    middles = {(each.kind, each.during) for each in made}
    assert {kind for kind, during in middles if during} == CHANGES
    assert {during for _, during in middles} == {None, *DURING}
    assert {kind for kind, during in middles if during is None} >= CHANGES
