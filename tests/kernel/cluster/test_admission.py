"""Who may join and leave a cluster, and how leaders are spread."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kernel.cluster.admission import admitted, dismissed
from kernel.cluster.leader_balance import moves
from kernel.cluster.messages import Admit
from kernel.cluster.records import Facts, NodeRecord, NodeState, decode, encode
from kernel.common.errors import Code, KernelError


def facts(store: str, label: str = "") -> Facts:
    return Facts(store, "127.0.0.1", 7400, label or store)


def members(*numbers: int) -> dict[int, NodeRecord]:
    return {each: NodeRecord(each, NodeState.MEMBER, facts(f"s{each}")) for each in numbers}


def code_of(asked: Admit, known: dict[int, NodeRecord], alive: set[int]) -> Code:
    with pytest.raises(KernelError) as refused:
        admitted(known, asked, alive, 4)
    return refused.value.code


def test_a_new_store_begins_to_join_and_its_record_can_be_read() -> None:
    record = admitted(members(1, 2), Admit(3, facts("s3"), 4), {1, 2}, 4)
    assert record == NodeRecord(3, NodeState.JOINING, facts("s3"))
    assert decode(encode(record)) == record
    assert decode(b"\xc1 no record") is None


def test_what_does_not_fit_is_refused() -> None:
    known = members(1, 2)
    assert code_of(Admit(3, facts("s3"), 8), known, {1, 2}) is Code.INVALID_ARGUMENT
    assert code_of(Admit(3, facts("s3", "s2"), 4), known, {1, 2}) is Code.NOT_ALLOWED
    assert admitted(known, Admit(3, facts("s3", "s2"), 4, 0, True), {1, 2}, 4) is not None
    assert code_of(Admit(2, facts("other"), 4), known, {1, 2}) is Code.ALREADY_EXISTS
    known[3] = NodeRecord(3, NodeState.JOINING, facts("s3"))
    assert code_of(Admit(4, facts("s4"), 4), known, {1, 2}) is Code.IN_USE


def test_a_store_that_has_a_place_takes_nobody_elses() -> None:
    known = members(1, 2, 3)
    assert code_of(Admit(3, facts("s3"), 4, replaces=2), known, {1}) is Code.ALREADY_EXISTS
    known[3] = NodeRecord(3, NodeState.JOINING, facts("s3"), replaces=2)
    assert admitted(known, Admit(3, facts("s3"), 4, replaces=2), {1}, 4) is None, "asked again"
    del known[2]
    known[3] = NodeRecord(3, NodeState.MEMBER, facts("s3"))
    assert admitted(known, Admit(3, facts("s3"), 4, replaces=2), {1}, 4) is None, "and it has it"


def test_a_store_joins_while_another_leaves_where_that_may_wait_for_its_room() -> None:
    known = members(1, 2, 3, 4)
    known[4] = replace(known[4], state=NodeState.LEAVING)
    asked, alive = Admit(5, facts("s5"), 4), {1, 2, 3, 4}
    assert admitted(known, asked, alive, 4, 3) == NodeRecord(5, NodeState.JOINING, facts("s5"))
    assert code_of(asked, known, alive) is Code.IN_USE, "no number is set: it takes a vote with it"
    known[4] = replace(known[4], state=NodeState.JOINING)
    with pytest.raises(KernelError, match="store 4 is joining just now"):
        admitted(known, asked, alive, 4, 3)


def test_a_wiped_disk_leaves_with_its_old_identity_before_it_joins_anew() -> None:
    record = admitted(members(1, 2, 3), Admit(3, facts("new"), 4), {1, 2}, 4)
    assert record is not None
    assert (record.state, record.facts, record.then) == (
        NodeState.LEAVING,
        facts("s3"),
        facts("new"),
    )
    replaced = Admit(3, facts("new"), 4, replaces=2)
    assert code_of(replaced, members(1, 2, 3), {1, 2}) is Code.NOT_ALLOWED, "it has one place"
    assert admitted(members(1, 2, 3), Admit(3, facts("new"), 4, replaces=3), {1, 2}, 4) == record


def test_nobody_leaves_whose_going_would_cost_the_majority() -> None:
    record = dismissed(members(1, 2, 3), 3, {1, 2})
    assert record is not None
    assert record.state is NodeState.LEAVING
    for known, alive, code in (
        (members(1, 2, 3), {1, 3}, Code.UNAVAILABLE),
        (members(1), {1}, Code.NOT_ALLOWED),
        (members(1), {1}, Code.NOT_ALLOWED),
    ):
        with pytest.raises(KernelError) as refused:
            dismissed(known, max(known), alive)
        assert refused.value.code is code
    with pytest.raises(KernelError, match="no store 9"):
        dismissed(members(1, 2), 9, {1, 2})


def test_leaders_are_spread_and_leave_whoever_is_not_able() -> None:
    able = {group: {1, 2, 3} for group in range(5)}
    now = dict.fromkeys(able, 1)
    for group, before, to in moves(now, able):
        assert now[group] == before
        now[group] = to
    assert sorted(list(now.values()).count(each) for each in (1, 2, 3)) == [1, 2, 2]
    assert moves(now, able) == []
    draining = {group: {2, 3} for group in range(5)}
    for group, _, to in moves(now, draining):
        now[group] = to
    assert 1 not in now.values()
