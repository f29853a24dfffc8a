"""A group's replica goes to another store, by the manager's steps; what may be asked for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kernel.api.changes import PutTopic
from kernel.api.model import DEFAULT_GROUP, GroupOptions, TopicOptions
from kernel.cluster.cluster_admin import GroupStatus
from kernel.cluster.messages import Admit, Goal, GroupReport, Move, Towards
from kernel.cluster.records import Facts, NodeRecord, NodeState
from kernel.cluster.replica_moves import (
    MOVES_MAX,
    ReplicaMove,
    check,
    encode,
    is_void,
    key_of,
    read,
    steps,
    wished,
)
from kernel.common.errors import Code, KernelError
from kernel.common.ids import RaftGroup
from tests.free_ports import free_ports
from tests.kernel.cluster.test_growing import Store
from tests.kernel.three_stores import until

GROUP = RaftGroup(1)


async def grown(tmp_path: Path, count: int) -> list[Store]:
    """So many stores of one cluster, each a voter of its group."""
    ports = free_ports(count)
    stores = []
    for number, port in enumerate(ports, 1):
        peers = {} if number == 1 else {1: ("127.0.0.1", ports[0])}
        stores.append(Store(number, tmp_path / str(number), port, peers))
        await stores[-1].start()
    first = stores[0]
    await until(lambda: 1 in first.roster.records)
    for store in stores[1:]:
        await store.cluster_admin.admit(Admit(store.number, store.facts, 1))
        await until(store.is_voter)
        await until(lambda at=store.number: first.roster.records[at].state is NodeState.MEMBER)  # type: ignore[misc]
    for store in stores:
        await until(lambda at=store: len(at.remote.connected) == count)  # type: ignore[misc]
    return stores


async def group_of(store: Store) -> GroupStatus:
    return next(each for each in (await store.cluster_admin.status()).groups if each.group == 1)


async def moved(store: Store, *voters: int) -> None:
    """Return once the group is in these stores, and on its way no more."""
    async with asyncio.timeout(20):
        while True:
            group = await group_of(store)
            if not group.moving and [each.node for each in group.replicas] == [*voters]:
                return
            await asyncio.sleep(0.05)


async def test_a_replica_goes_where_it_is_wanted_and_what_it_was_is_let_go_of(
    tmp_path: Path,
) -> None:
    stores = await grown(tmp_path, 3)
    _first, second, third = stores
    try:
        topic = PutTopic("default", "kept", TopicOptions(), {DEFAULT_GROUP: GroupOptions()})
        await second.local.client.administer(topic)
        await second.cluster_admin.move(Move(GROUP, gone=3))
        await moved(third, 1, 2)
        await until(lambda: third.local.store.journal.left == {GROUP})
        await until(lambda: third.local.client.topic("default", "kept"))
        await third.cluster_admin.move(Move(GROUP, to=3, gone=1))  # which leads it
        await moved(second, 2, 3)
        await until(lambda: stores[0].local.store.journal.left == {GROUP})
        assert not third.local.store.journal.left
        assert third.local.store.replica(GROUP).state.topics
        with pytest.raises(KernelError) as caught:
            await third.cluster_admin.move(Move(GROUP, cancel=True))
        assert caught.value.code is Code.NOT_FOUND
        await third.cluster_admin.move(Move(GROUP, gone=2))
        await moved(second, 3)
        await second.cluster_admin.move(Move(GROUP, to=1, gone=3))  # the only one
        await moved(second, 1)
        await until(lambda: stores[0].local.store.replica(GROUP).state.topics)
        await stores.pop().stop()
        await second.cluster_admin.move(Move(GROUP, to=3))  # which does not answer
        while [each.node for each in (await group_of(second)).replicas] != [1, 3]:
            await asyncio.sleep(0.05)
        await second.cluster_admin.move(Move(GROUP, cancel=True))
        await moved(second, 1)
    finally:
        for store in reversed(stores):
            await store.stop()


# --- What may be asked for ------------------------------------------------------------------------

STORES = {
    number: NodeRecord(number, state, Facts(f"d{number}", "h", 1, label))
    for number, state, label in (
        (1, NodeState.MEMBER, "a"),
        (2, NodeState.MEMBER, "b"),
        (3, NodeState.MEMBER, "b"),
        (4, NodeState.JOINING, "c"),
        (5, NodeState.MEMBER, "d"),
    )
}


MANY = {each: (1, ReplicaMove(each, 5, 0)) for each in range(2, MOVES_MAX + 2)}


def led(*voters: int, serves: bool = True) -> GroupReport:
    return GroupReport(1, 1, voters[0], serves, 1, 1, 1, list(voters), [], False, [])


@pytest.mark.parametrize(
    ("asked", "group", "code"),
    [
        (Move(1, to=5), None, Code.UNAVAILABLE),
        (Move(1, to=5), led(1, 2, serves=False), Code.UNAVAILABLE),
        (Move(1, to=2), led(1, 2), Code.INVALID_ARGUMENT),
        (Move(1, to=5, gone=3), led(1, 2), Code.INVALID_ARGUMENT),
        (Move(1), led(1, 2), Code.INVALID_ARGUMENT),
        (Move(1, gone=1), led(1), Code.NOT_ALLOWED),
        (Move(1, to=3, gone=1), led(1, 2), Code.NOT_ALLOWED),
        (Move(1, to=3, gone=2), led(1, 2), None),
        (Move(1, to=5, gone=1), led(1, 2), None),
        (Move(1, gone=1), led(1, 2), None),
    ],
)
def test_a_move_has_to_fit_the_group(
    asked: Move, group: GroupReport | None, code: Code | None
) -> None:
    if code is None:
        check(asked, group, STORES, same_host=False)
        return
    with pytest.raises(KernelError) as caught:
        check(asked, group, STORES, same_host=False)
    assert caught.value.code is code


def test_two_replicas_are_on_one_host_only_if_it_is_said() -> None:
    check(Move(1, to=3), led(1, 2), STORES, same_host=True)


def test_a_record_says_what_is_wanted_until_it_is_done() -> None:
    move = ReplicaMove(1, 5, 2)
    moves = read({key_of(1): (7, encode(move))})
    assert moves == {1: (7, move)}
    assert wished({}, STORES, Move(1, 5, 2)) == move
    assert wished(moves, STORES, Move(1, 5, 2)) is None
    assert steps(move) == [Towards(1, 5, Goal.VOTER, 2)]
    assert steps(ReplicaMove(1, 0, 2)) == [Towards(1, 2, Goal.GONE)]
    cancelled = wished(moves, STORES, Move(1, cancel=True))
    assert cancelled == ReplicaMove(1, 5, 2, cancelled=True)
    assert steps(cancelled) == [Towards(1, 5, Goal.NO_LEARNER)]
    assert wished({1: (8, cancelled)}, STORES, Move(1, cancel=True)) is None
    assert is_void(move, {1, 2})
    assert not is_void(move, STORES)
    assert not is_void(cancelled, {1, 2})


@pytest.mark.parametrize(
    ("known", "asked", "code"),
    [
        ({1: (1, ReplicaMove(1, 5, 2))}, Move(1, 5, 1), Code.IN_USE),
        ({}, Move(1, cancel=True), Code.NOT_FOUND),
        ({}, Move(0, 5), Code.NOT_ALLOWED),
        ({}, Move(1, 4), Code.NOT_ALLOWED),
        ({}, Move(1, 9), Code.NOT_ALLOWED),
        (
            {n: (1, ReplicaMove(n, 5, 0)) for n in range(2, MOVES_MAX + 2)},
            Move(1, 5),
            Code.LIMIT_EXCEEDED,
        ),
    ],
)
def test_what_cannot_be_wanted_is_refused(
    known: dict[int, tuple[int, ReplicaMove]], asked: Move, code: Code
) -> None:
    with pytest.raises(KernelError) as caught:
        wished(known, STORES, asked)
    assert caught.value.code is code
