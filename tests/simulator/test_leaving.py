"""A store leaves a group: nothing of it counts there any more but term and vote, and it comes back
as a learner, by a snapshot."""

from __future__ import annotations

import asyncio

import pytest

from kernel.common.errors import Code, KernelError
from kernel.common.feature_levels import LATEST
from kernel.common.ids import METADATA_GROUP
from kernel.raft.members.configuration import ADD_LEARNER, ADD_VOTER, REMOVE, Change
from kernel.raft.messages import RaftMessage
from kernel.store.raft_groups.leaving import LeaveGroup
from tests.simulator.cluster import Cluster, Node
from tests.simulator.test_cluster import (
    GROUP,
    Publisher,
    bodies_at,
    clustered,
    in_mid_transfer,
    level,
    state_hash,
)
from tests.simulator.test_healing import filled, follower, is_healed, watched


def said(leader: Node, level: int = LATEST) -> LeaveGroup:
    """What its leader would say of a group to who is no member."""
    core = leader.member(GROUP).core
    return LeaveGroup(GROUP, core.term, core.log.last_index, level)


async def raised(cluster: Cluster) -> None:
    """All features are on."""
    leader = await cluster.led(METADATA_GROUP)
    await leader.opened.client.raise_level(LATEST)
    await cluster.until(
        lambda: all(each.opened.store.feature_level == LATEST for each in cluster.running())
    )


async def removed(cluster: Cluster) -> tuple[Node, Node, Publisher]:
    """(leader, who is no member any more, what was published)."""
    await raised(cluster)
    leader, publisher = await filled(cluster)
    gone = follower(cluster, but=leader)
    await cluster.change(GROUP, Change(REMOVE, gone.number))
    await publisher.published(leader, [b"without it"])
    return leader, gone, publisher


async def back(cluster: Cluster, node: Node) -> None:
    """It is made a member again, as the manager does it."""
    await cluster.change(GROUP, Change(ADD_LEARNER, node.number))
    leader = await cluster.led(GROUP)
    progress = leader.member(GROUP).core.tracker.progress
    await cluster.until(lambda: progress[node.number].match >= said(leader).index - 5)
    await cluster.change(GROUP, Change(ADD_VOTER, node.number))
    await cluster.until(lambda: is_healed(node))


@clustered()
async def test_who_has_left_has_nothing_and_says_nothing_until_it_has_a_snapshot(
    cluster: Cluster,
) -> None:
    leader, gone, publisher = await removed(cluster)
    store = gone.opened.store
    before = store.journal.hard_state(GROUP)
    assert store.journal.snapshot_of(GROUP)[0] or store.journal.last_index(GROUP)
    await store.leave(said(leader))
    assert not store.holds(GROUP)
    assert (store.journal.last_index(GROUP), store.journal.snapshot_of(GROUP)) == (0, (0, 0, ""))
    assert not [each for each in store.journal._locations.held() if each[0] == GROUP]
    assert not store.replica(GROUP).state.topics
    assert not store.consensus.healing.lost
    gone.crash()
    await gone.start()
    store = gone.opened.store
    assert not store.holds(GROUP)
    assert store.journal.left == {GROUP}
    hard = store.journal.hard_state(GROUP)
    assert (hard.term, hard.vote) == (before.term, before.vote)
    sent = watched(gone)
    gone.member(GROUP).core.campaign()
    await publisher.published(leader, [b"meanwhile"])
    await asyncio.sleep(5)
    assert not sent
    seen: list[RaftMessage] = []
    inner = store.consensus.install

    def install(received: object) -> None:
        seen.extend(sent)
        inner(received)  # type: ignore[arg-type]

    store.consensus.install = install  # type: ignore[method-assign, assignment]
    await back(cluster, gone)
    assert not seen, "it said something before it had a snapshot"
    assert store.journal.left == frozenset()
    await publisher.published(leader, [b"afterwards"])
    await level(cluster)
    assert await bodies_at(gone) == publisher.acked
    assert len({state_hash(node) for node in cluster.running()}) == 1
    leader.crash()
    following = await cluster.led()
    await publisher.published(following, [b"without the old leader"])


@clustered()
async def test_an_old_word_that_it_is_no_member_is_refused(cluster: Cluster) -> None:
    leader, gone, publisher = await removed(cluster)
    old = said(leader)
    await cluster.change(GROUP, Change(ADD_LEARNER, gone.number))
    await publisher.published(leader, [b"it has this"])
    await level(cluster)
    with pytest.raises(KernelError) as caught:
        await gone.opened.store.leave(old)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert gone.opened.store.holds(GROUP)
    with pytest.raises(KernelError) as caught:
        await leader.opened.store.leave(said(leader))
    assert caught.value.code is Code.NOT_LEADER


def test_who_is_no_member_any_more_stops_the_snapshot_that_it_is_being_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A move that was cancelled: the copy would go on to its end, and be given up then."""

    @clustered()
    async def scenario(cluster: Cluster) -> None:
        await raised(cluster)
        leader, node = await in_mid_transfer(cluster, Publisher(cluster))
        store, leader = node.opened.store, await cluster.led()
        receiver = node.opened.receiver
        assert receiver is not None
        assert not store.has_nothing_of(GROUP), "it has to be told"
        before = receiver.received_bytes
        await cluster.change(GROUP, Change(REMOVE, node.number))
        with pytest.raises(KernelError) as caught:
            await store.leave(said(leader))
        assert caught.value.code is Code.BUSY
        await cluster.until(lambda: not receiver.is_receiving(GROUP))
        assert (receiver.installed, receiver.failures) == (0, 1)
        assert receiver.received_bytes - before < 200_000, "the rest is not sent"
        await store.leave(said(leader))
        assert store.has_nothing_of(GROUP)
        assert not [each for each in store.journal._locations.held() if each[0] == GROUP]
        await back(cluster, node)
        await level(cluster)
        assert await bodies_at(node) == await bodies_at(leader)

    monkeypatch.setattr("kernel.store.snapshots.transfer.ENTRIES_MAX", 2)
    scenario()
