"""Replicas find room by themselves: stores join and leave, where each group is in three of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from kernel.api.changes import PutTopic
from kernel.api.model import DEFAULT_GROUP, GroupOptions, TopicOptions
from kernel.cluster import manager, records, replica_count, short_groups
from kernel.cluster.cluster_admin import ClusterStatus
from kernel.cluster.group_loads import OVER_MS, GroupLoads
from kernel.cluster.messages import Admit, Goal, GroupReport, Report, SnapshotReport, Towards
from kernel.cluster.placement.view import Kind, Plan, StoreState
from kernel.cluster.placement_view import groups_of, moves_of, orphans, stores_of
from kernel.cluster.placing import Placing
from kernel.cluster.records import Facts, NodeRecord, NodeState
from kernel.cluster.replica_moves import ReplicaMove, steps
from kernel.cluster.short_groups import (
    AFTER_MS,
    KEY,
    ShortGroup,
    ShortSince,
    closed,
    encode,
    read,
)
from kernel.common.errors import Code, KernelError
from kernel.common.ids import ADDED_FIRST, METADATA_GROUP, RaftGroup
from kernel.common.limits import ADDED_GROUPS_MAX
from kernel.store.snapshots.progress import Progress
from tests.free_ports import free_ports
from tests.kernel.cluster.test_growing import Always, Store
from tests.kernel.three_stores import until

GROUPS = 5
ADDED = [RaftGroup(ADDED_FIRST), RaftGroup(ADDED_FIRST + 1)]
REPLICAS = 3


async def test_a_cluster_that_is_there_keeps_its_number_of_replicas_whatever_the_setting(
    tmp_path: Path,
) -> None:
    (port,) = free_ports(1)
    for replicas in (0, REPLICAS):
        store = Store(1, tmp_path / "1", port, {}, GROUPS, replicas)
        await store.start()
        try:
            await until(lambda: 1 in store.roster.records)  # noqa: B023 - awaited at once
            await store.manager.look()
            await store.manager.look()
            assert store.cluster_service.replicas() == 0
        finally:
            await store.stop()


def held(status: ClusterStatus) -> Counter[int]:
    """Replicas of data groups by store."""
    return Counter(
        replica.node for each in status.groups if each.group for replica in each.replicas
    )


def is_whole(status: ClusterStatus) -> bool:
    groups = [each for each in status.groups if each.group]
    return (
        len(groups) == GROUPS
        and all(len(each.replicas) == REPLICAS and each.leader for each in groups)
        and all(replica.voter for each in groups for replica in each.replicas)
        and not any(each.moving or each.short for each in status.groups)
    )


async def comes_to(store: Store, condition: Callable[[ClusterStatus], object]) -> None:
    """Within so long; else what there is, is told."""
    for _ in range(300):
        now = await store.cluster_admin.status()
        if condition(now):
            return
        await asyncio.sleep(0.1)
    pytest.fail(f"{held(now)}, and {store.manager.placing.plan}: {now.groups}")


def group_0(status: ClusterStatus) -> list[bool]:
    return sorted(each.voter for each in status.groups[0].replicas)


async def are_added(stores: list[Store]) -> None:
    """Two groups come, get their replicas, and take queues; homes are where they were."""
    first = stores[0]
    assert await stores[1].cluster_admin.add_groups(2) == ADDED
    assert set(ADDED) <= first.cluster_service._closed(), "they take no queues before they grow"
    await comes_to(
        first, lambda now: [(e.group, e.waits) for e in now.added] == [(65, ""), (66, "")]
    )
    await comes_to(first, lambda now: sum(held(now).values()) == REPLICAS * (GROUPS + 2))
    assert not first.cluster_service._closed()
    assert all(set(ADDED) <= set(each.local.store.data_groups) for each in stores)
    wide = PutTopic(
        "default", "wide", TopicOptions(queues=GROUPS + 2), {DEFAULT_GROUP: GroupOptions()}
    )
    await stores[1].local.client.administer(wide)
    await until(lambda: all(each.local.client.topic("default", "wide") for each in stores))
    assert {ref.group for ref in first.local.client.topic("default", "wide").queues} >= set(ADDED)
    added = first.local.store.home_groups
    assert added == [*range(1, GROUPS + 1)], "homes are where they were"
    with pytest.raises(KernelError) as many:
        await first.cluster_admin.add_groups(ADDED_GROUPS_MAX - 1)
    assert many.value.code is Code.LIMIT_EXCEEDED


async def snapshots_on_their_way_are_told(asked: Store, receives: Store) -> None:
    """By group and by the store that is sent it, whichever store is asked."""
    receiver = receives.local.store.consensus.receiver
    assert receiver is not None
    receiver.progress[RaftGroup(1)] = Progress(1, lambda: 5.0)
    told = {each.group: each.receiving for each in (await asked.cluster_admin.status()).groups}
    del receiver.progress[RaftGroup(1)]
    expected = SnapshotReport(1, 1, True, 0, 0, 0, 0, 0, 0, 0)
    assert told.pop(1) == {receives.number: expected}
    assert not any(told.values())


async def test_stores_that_join_take_their_share_and_who_leaves_gives_it_away_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager, "COMPARE_MS", 200)
    ports = free_ports(5)
    stores: list[Store] = []
    try:
        for number, port in enumerate(ports, 1):
            peers = {} if number == 1 else {1: ("127.0.0.1", ports[0])}
            stores.append(Store(number, tmp_path / str(number), port, peers, GROUPS, REPLICAS))
            await stores[-1].start()
            stores[-1].manager.calm = Always()
        first, *others = stores
        await until(lambda: 1 in first.roster.records)
        topic = PutTopic("default", "kept", TopicOptions(), {DEFAULT_GROUP: GroupOptions()})
        await first.local.client.administer(topic)
        for store in others:
            await store.cluster_admin.admit(Admit(store.number, store.facts, GROUPS))
            await until(
                lambda at=store.number: (  # type: ignore[misc]
                    at in first.roster.records
                    and first.roster.records[at].state is NodeState.MEMBER
                )
            )
        await comes_to(first, lambda now: is_whole(now) and set(held(now).values()) == {3})
        await comes_to(first, lambda now: group_0(now) == [True] * 5)
        status = await first.cluster_admin.status()
        assert status.replicas == REPLICAS
        assert status.problems == []
        await snapshots_on_their_way_are_told(first, stores[2])
        await until(lambda: all(each.local.client.topic("default", "kept") for each in stores))

        missing = 0
        await first.cluster_admin.dismiss(5)
        while 5 in first.roster.records:
            now = await first.cluster_admin.status()
            missing += sum(len(each.replicas) < REPLICAS for each in now.groups)
            await asyncio.sleep(0.05)
        assert not missing
        await comes_to(first, lambda now: is_whole(now) and not held(now)[5])
        await are_added(stores[:4])
        await comes_to(first, lambda now: group_0(now) == [False, True, True, True])
        assert not first.cluster_service.count_short()
        monkeypatch.setattr(short_groups, "AFTER_MS", 0)
        await first.cluster_admin.set_replicas(5)
        await until(
            lambda: {each.cluster_service.count_short() for each in stores[:4]} == {GROUPS + 3}
        )
        found = stores[1].cluster_service.short_groups()[1]
        assert {(each.what, each.closed) for group, each in found.items() if group} <= {
            *((f"{count} of 5 replicas", count < 4) for count in (3, 4))
        }, "closed as long as there is a store for another one"
        await first.cluster_admin.set_replicas(1)
        await until(lambda: {each.cluster_service.count_short() for each in stores[:4]} == {0})
        await comes_to(first, lambda now: sum(held(now).values()) == GROUPS + 2)
        with pytest.raises(KernelError) as caught:
            await first.cluster_admin.set_replicas(2)
        assert caught.value.code is Code.INVALID_ARGUMENT
    finally:
        for store in reversed(stores):
            await store.stop()


async def test_a_store_that_cannot_leave_does_not_keep_out_the_one_that_would_let_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four stores one is dead: where three replicas are wanted, nobody can take those of a store
    that is to leave.
    """
    monkeypatch.setattr(manager, "COMPARE_MS", 200)
    ports = free_ports(5)
    peers = {number: ("127.0.0.1", port) for number, port in enumerate(ports, 1)}
    stores = [
        Store(number, tmp_path / str(number), ports[number - 1], peers, GROUPS, REPLICAS)
        for number in range(1, 6)
    ]
    first, _, leaver, dead, comes = stores

    async def join(store: Store) -> None:
        await store.cluster_admin.admit(Admit(store.number, store.facts, GROUPS))
        await until(lambda: store.number in first.roster.records)
        await until(lambda: first.roster.records[store.number].state is NodeState.MEMBER)

    try:
        for store in stores:
            await store.start()
        await until(lambda: 1 in first.roster.records)
        for store in stores[1:4]:
            await join(store)
        await comes_to(first, is_whole)
        await dead.stop()
        stores.remove(dead)
        await first.cluster_admin.dismiss(leaver.number)
        await comes_to(
            first, lambda now: any("have another one join" in each.error for each in now.nodes)
        )
        await join(comes)
        await until(lambda: leaver.number not in first.roster.records)
        await first.cluster_admin.dismiss(dead.number)
        await until(lambda: sorted(first.roster.records) == [1, 2, 5])
        await comes_to(first, is_whole)
    finally:
        for store in reversed(stores):
            await store.stop()


# --- Pure parts -----------------------------------------------------------------------------------


def record(
    number: int, state: NodeState = NodeState.MEMBER, replaces: int = 0, *, wiped: bool = False
) -> NodeRecord:
    facts = Facts(f"d{number}", "h", 1, f"host-{number}")
    return NodeRecord(number, state, facts, replaces, facts if wiped else None)


def report(number: int, *groups: GroupReport, heals: tuple[int, ...] = ()) -> Report:
    return Report(
        number, "", "", 0, False, True, [], {}, {}, list(groups), heals=list(heals), room=1_000
    )


def led(
    group: int,
    leader: int,
    *voters: int,
    learners: tuple[int, ...] = (),
    joint: bool = False,
    written: int = 0,
    sent: int = 0,
    live: int = 0,
) -> GroupReport:
    return GroupReport(
        group, 7, leader, True, 9, 9, 9, [*voters], [*learners], joint, [], written, sent, live
    )  # fmt: skip


def test_the_planner_hears_what_is_to_become_of_each_store() -> None:
    records = {
        each.number: each
        for each in (
            record(1),
            record(2),
            record(3, NodeState.LEAVING),
            record(4, NodeState.JOINING),
            record(5, NodeState.JOINING),
            record(6, NodeState.LEAVING, wiped=True),
        )
    }
    reports = {each: report(each, led(1, each, each, live=500)) for each in (1, 3, 4, 5)}
    found = {each.number: each for each in stores_of(records, reports, {1, 2, 3, 4}, {1})}
    assert {number: (each.state, each.answers) for number, each in found.items()} == {
        1: (StoreState.JOINING, True),
        2: (StoreState.IN, False),
        3: (StoreState.LEAVING, True),
        4: (StoreState.JOINING, True),
    }, "5 is not in group 0 yet, 6 has lost what it had"
    assert found[1].capacity.live == 1_500


def test_the_planner_hears_the_zone_of_each_store_and_older_builds_read_past_it() -> None:
    named = replace(record(1), facts=replace(record(1).facts, zone="east"))
    found = stores_of({1: named, 2: record(2)}, {1: report(1), 2: report(2)}, {1, 2}, ())
    assert [each.zone for each in found] == ["east", ""]
    assert records.decode(records.encode(named)) == named
    *before, zone = msgspec.msgpack.decode(records.encode(named))[2]
    assert zone == "east"
    old = msgspec.msgpack.encode([1, NodeState.MEMBER, before, 0, None])
    assert records.decode(old) == record(1)


@pytest.mark.parametrize(
    ("answers", "members", "state"),
    [
        (True, {1, 2, 3}, StoreState.LEAVING),
        (True, {1, 2}, StoreState.IN),  # nobody could have what it has instead, so far
        (False, {1, 2, 3}, None),
    ],
)
def test_a_store_that_is_replaced_gives_away_what_it_has_if_it_answers(
    *, answers: bool, members: set[int], state: StoreState | None
) -> None:
    records = {1: record(1), 2: record(2), 3: record(3, NodeState.JOINING, replaces=2)}
    reports = {each: report(each) for each in ((1, 2, 3) if answers else (1, 3))}
    found = {each.number: each.state for each in stores_of(records, reports, members, ())}
    assert found.get(2) == state


def test_a_learner_that_heals_counts_and_one_that_nobody_wants_does_not() -> None:
    groups = {
        1: led(1, 1, 1, 2, learners=(3, 4, 5)),
        2: led(2, 1, 1, 2, learners=(4,)),
        METADATA_GROUP: led(METADATA_GROUP, 1, 1, 2, 3, learners=(4,)),
        3: led(3, 1, 1, 2, joint=True, learners=(4,)),
    }
    reports = {each: report(each, heals=(1,) if each == 3 else ()) for each in (1, 2, 3, 4)}
    moving = {2: (7, ReplicaMove(2, 4, 1))}
    found = {each.number: each for each in groups_of(groups, reports, moving, GroupLoads())}
    assert found[1].members == (1, 2, 3, 5), "5 does not answer: it may heal"
    assert found[2].members == (1, 2)
    assert found[METADATA_GROUP].members == (1, 2, 3)
    assert found[3].leader == 0, "nothing else can be decided there now"
    assert orphans(groups, reports, moving) == [(1, 4)]
    assert [(each.kind, each.to, each.gone) for each in moves_of(moving)] == [(Kind.REPLACE, 4, 1)]
    cancelled = {2: (8, ReplicaMove(2, 4, 1, cancelled=True))}
    assert [(each.kind, each.to, each.gone) for each in moves_of(cancelled)] == [
        (Kind.REMOVE, 0, 0)
    ]


def test_who_is_not_to_vote_in_group_0_any_more_goes_on_learning() -> None:
    assert steps(ReplicaMove(METADATA_GROUP, 6, 2)) == [
        Towards(METADATA_GROUP, 6, Goal.VOTER),
        Towards(METADATA_GROUP, 2, Goal.OBSERVER),
    ]
    assert steps(ReplicaMove(METADATA_GROUP, 6, 2, cancelled=True)) == []


def test_loads_are_averages_of_what_leaders_report() -> None:
    loads = GroupLoads()
    assert loads.of(1) == (0.0, 0.0, 0.0)
    loads.take([(1, led(1, 1, 1, 2, 3, written=0, sent=0, live=10))], 0)
    assert loads.of(1) == (0.0, 0.0, 10.0)
    loads.take([(1, led(1, 1, 1, 2, 3, written=4_000, sent=6_000, live=20))], 2_000)
    assert loads.of(1) == pytest.approx((2_000.0, 3_000.0 + 2 * 2_000.0, 20.0))
    # Another leads: it is compared with itself from now on, and what was known holds on.
    loads.take([(2, led(1, 2, 1, 2, 3, written=9, live=20))], 4_000)
    assert loads.of(1).written == pytest.approx(2_000.0)
    # So is one that was started anew.
    loads.take([(2, led(1, 2, 1, 2, 3, written=3, live=20))], 6_000)
    assert loads.of(1).written == pytest.approx(2_000.0)
    loads.take([(2, led(1, 2, 1, 2, 3, written=3, live=20))], 6_000 + OVER_MS)
    assert loads.of(1).written < 10, "two seconds of a burst weigh little after an hour of nothing"


class Asked:
    """What a manager may do, written down."""

    def __init__(self) -> None:
        self.moves: list[tuple[ReplicaMove, int]] = []
        self.towards: list[Towards] = []
        self.handed: list[tuple[int, int]] = []
        self.states: dict[int, NodeState] = {}
        """Of stores that are no members."""
        self.placing = Placing(self.put_move, self.ask, self.hand_over)

    async def put_move(self, move: ReplicaMove, version: int) -> None:
        self.moves.append((move, version))

    async def ask(self, asked: Towards) -> None:
        self.towards.append(asked)

    async def hand_over(self, group: RaftGroup, to: int) -> None:
        self.handed.append((group, to))

    async def look(
        self,
        groups: list[GroupReport],
        moving: dict[int, tuple[int, ReplicaMove]] | None = None,
        *,
        answer: tuple[int, ...] = (1, 2, 3, 4),
        is_calm: bool = False,
    ) -> None:
        records = {
            each: record(each, self.states.get(each, NodeState.MEMBER)) for each in (1, 2, 3, 4)
        }
        reports = {each: report(each, *groups) for each in answer}
        found = {each.group: each for each in groups}
        begun = self.placing.look(
            3, records, reports, found, moving or {}, set(), 0, is_calm=is_calm
        )
        await asyncio.gather(*begun)


METADATA = led(METADATA_GROUP, 1, 1, 2, 3, learners=(4,))


async def test_a_group_with_too_few_replicas_gets_one_and_its_record_says_why() -> None:
    asked = Asked()
    await asked.look([METADATA, led(1, 1, 1, 2)])
    ((move, version),) = asked.moves
    assert (move.group, move.to in (3, 4), move.gone, version) == (1, True, 0, 0)
    assert move.why == "short: group 1 has 2 of 3 replicas"
    assert asked.placing.plan.short == {1: "2 of 3 replicas"}


async def test_leaders_move_for_the_sake_of_an_even_load_only_when_it_is_calm() -> None:
    members = [(1, 2, 3), (1, 2, 4), (1, 3, 4)] * 2
    groups = [METADATA, *(led(each, 1, *voters) for each, voters in enumerate(members, 1))]
    asked = Asked()
    await asked.look(groups)
    assert not asked.handed
    await asked.look(groups, is_calm=True)
    assert asked.handed


async def test_what_leads_to_a_store_that_is_gone_is_cancelled() -> None:
    asked = Asked()
    move = ReplicaMove(1, 9, 2)
    await asked.look([METADATA, led(1, 1, 1, 2, 3)], {1: (5, move)})
    assert asked.moves == [(ReplicaMove(1, 9, 2, cancelled=True), 5)]


async def test_nothing_is_held_only_once_every_group_says_so() -> None:
    asked = Asked()
    assert asked.placing.still_held(4, [1], {}) == "group 1: nobody leads it"
    await asked.look([METADATA, led(1, 1, 1, 2, 3)])
    assert asked.placing.still_held(4, [1], {}) == ""
    coming = {1: (1, ReplicaMove(1, 4, 0))}
    assert asked.placing.still_held(4, [1], coming) == "group 1: is on its way to store 4"
    await asked.look([METADATA, led(1, 1, 1, 2, learners=(4,))], coming)
    assert asked.placing.still_held(4, [1], {}) == "group 1: is still in store 4"


async def test_a_store_that_cannot_leave_says_what_it_waits_for() -> None:
    asked = Asked()
    asked.states[4] = NodeState.LEAVING
    await asked.look([METADATA, led(1, 1, 1, 2, 4)], answer=(1, 2, 4))
    assert asked.placing.still_held(4, [1], {}) == (
        "no other answers and has room for 1 of its groups: have another one join; "
        "group 1: is still in store 4"
    )


def test_the_number_of_replicas_is_a_record() -> None:
    assert replica_count.read({}) == (0, 0)
    assert replica_count.read({replica_count.KEY: (4, replica_count.encode(5))}) == (4, 5)
    assert replica_count.read({replica_count.KEY: (4, b"many")}) == (4, 0)
    for count in (0, 2, 17, -1):
        with pytest.raises(KernelError):
            replica_count.check(count)
    for count in (1, 3, 15):
        replica_count.check(count)


def test_a_group_is_written_down_once_it_has_been_short_for_a_while() -> None:
    since = ShortSince()
    plan = Plan(short={1: "2 of 3 replicas", 2: "1 of 3 replicas"}, closed={1})
    assert since.look(plan, 0) == {}
    assert since.look(plan, AFTER_MS - 1) == {}
    found = since.look(plan, AFTER_MS)
    assert found == {
        1: ShortGroup("2 of 3 replicas", closed=True),
        2: ShortGroup("1 of 3 replicas"),
    }
    value = encode(found)
    assert value is not None
    assert read({KEY: (4, value)}) == (4, found)
    assert closed(found) == {1}
    assert since.look(Plan(short={2: "1 of 3 replicas"}), AFTER_MS + 1) == {2: found[2]}
    assert since.look(plan, AFTER_MS + 2) == {2: found[2]}, "it counts from the beginning again"


def test_what_a_later_build_may_write_of_short_groups_is_as_good_as_nothing() -> None:
    assert encode({}) is None
    assert read({}) == (0, {})
    assert read({KEY: (4, b"\xc1")}) == (4, {})
