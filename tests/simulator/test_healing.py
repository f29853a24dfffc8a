"""A replica that lost synced data leaves the vote and comes back by itself."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from kernel.broker.group_state.state import GroupState
from kernel.common.ids import RaftGroup
from kernel.log.errors import JournalDamaged, RecordDamaged, RecordUnread
from kernel.log.format.checkpoint import Checkpoint
from kernel.log.format.files import locations_name
from kernel.raft.errors import LogDamaged
from kernel.raft.members.configuration import ADD_LEARNER, REMOVE, Change
from kernel.raft.messages import PREVOTE, VOTE, Membership, RaftMessage
from kernel.store.entry_reader import PAUSES_SECONDS
from kernel.store.raft_groups.healing import Healing
from kernel.store.recovery.damage import Others
from tests.simulator.cluster import Cluster, Node
from tests.simulator.test_cluster import (
    GROUP,
    Publisher,
    bodies_at,
    clustered,
    level,
    state_hash,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel.common.ports import Clock
    from kernel.store.raft_groups.healing import Groups
    from kernel.store.snapshots.transfer import Ask

BODY = b"x" * 500


def follower(cluster: Cluster, *, but: Node) -> Node:
    return next(node for node in cluster.running() if node is not but)


def segments(node: Node) -> list[str]:
    return [f"journal/{name}" for name in node.disk.names("journal") if name.endswith(".seg")]


def flip_early(node: Node) -> None:
    """A bit of an entry that was synced long ago, behind the checkpoint."""
    node.disk.flip(segments(node)[0], 4096 + 8_000)


def spoil_early(node: Node) -> None:
    """A sector of it does not read any more."""
    node.disk.spoil(segments(node)[0], 4096 + 8_000)


def watched(node: Node) -> list[RaftMessage]:
    """Every message that the node sends from its next start on."""
    sent: list[RaftMessage] = []
    wires = node.wires
    inner = wires.send

    def send(group: int, message: RaftMessage) -> None:
        if group == GROUP:
            sent.append(message)
        inner(group, message)

    wires.send = send  # type: ignore[method-assign]
    return sent


def is_healed(node: Node) -> bool:
    healing = node.opened.store.consensus.healing
    members = node.member(GROUP).core.tracker.members
    return not healing.patients and node.number in members.voters


async def filled(cluster: Cluster, count: int = 60) -> tuple[Node, Publisher]:
    """A leader, and what was published there."""
    leader = await cluster.led()
    publisher = Publisher(cluster)
    await publisher.topic(leader)
    for first in range(0, count, 5):
        bodies = [b"%d" % number + BODY for number in range(first, first + 5)]
        await publisher.published(leader, bodies)
    await level(cluster)
    return leader, publisher


@clustered()
async def test_a_replica_with_a_damaged_journal_is_silent_then_heals(cluster: Cluster) -> None:
    leader, publisher = await filled(cluster)
    hurt = follower(cluster, but=leader)
    hurt.kill()
    flip_early(hurt)
    await hurt.start()
    healing = hurt.opened.store.consensus.healing
    assert GROUP in healing.silent
    sent = watched(hurt)
    hurt.member(GROUP).core.campaign()
    await publisher.published(leader, [b"meanwhile"])
    assert not sent, "it said something before it had a snapshot"

    voters: set[tuple[int, ...]] = set()

    def seen() -> bool:
        voters.add(leader.member(GROUP).core.tracker.members.voters)
        return is_healed(hurt)

    await cluster.until(seen)
    assert tuple(sorted({1, 2, 3} - {hurt.number})) in voters, "it never left the vote"
    await publisher.published(leader, [b"afterwards"])
    await level(cluster)
    assert await bodies_at(hurt) == publisher.acked
    assert len({state_hash(node) for node in cluster.running()}) == 1


@clustered()
async def test_a_healed_replica_carries_the_data_alone_with_one_other(cluster: Cluster) -> None:
    leader, publisher = await filled(cluster)
    hurt = follower(cluster, but=leader)
    hurt.kill()
    flip_early(hurt)
    await hurt.start()
    await cluster.until(lambda: is_healed(hurt))
    leader.crash()
    following = await cluster.led()
    await publisher.published(following, [b"without the old leader"])
    assert await bodies_at(following) == publisher.acked


@clustered()
async def test_a_restart_in_the_middle_of_healing_begins_it_anew(cluster: Cluster) -> None:
    leader, publisher = await filled(cluster)
    hurt = follower(cluster, but=leader)
    hurt.kill()
    flip_early(hurt)
    await hurt.start()
    await cluster.until(lambda: GROUP not in hurt.opened.store.consensus.healing.silent)
    hurt.crash()
    await hurt.start()
    assert GROUP in hurt.opened.store.consensus.healing.silent
    await cluster.until(lambda: is_healed(hurt))
    await level(cluster)
    assert await bodies_at(hurt) == publisher.acked
    await cluster.until(lambda: not hurt.opened.store.journal.last_checkpoint.damaged)
    hurt.crash()
    await hurt.start()
    assert not hurt.opened.store.consensus.healing.patients


@clustered()
async def test_the_term_in_which_it_may_have_voted_is_given_to_nobody(cluster: Cluster) -> None:
    leader, _ = await filled(cluster)
    hurt = follower(cluster, but=leader)
    hurt.kill()
    flip_early(hurt)
    await hurt.start()
    member = hurt.member(GROUP)
    await cluster.until(lambda: GROUP not in hurt.opened.store.consensus.healing.silent)
    hard = hurt.opened.store.journal.hard_state(GROUP)
    assert hard.term == leader.member(GROUP).core.term == member.core.term
    assert hard.vote == hurt.number


def test_a_snapshot_that_knows_it_as_a_voter_again_ends_healing() -> None:
    learner, voter = Membership((2, 3), learners=(1,)), Membership((1, 2, 3))
    core = SimpleNamespace(tracker=SimpleNamespace(members=learner))
    healed: list[int] = []
    groups = SimpleNamespace(members={GROUP: SimpleNamespace(core=core)}, healed=healed.append)
    clock = SimpleNamespace(monotonic_ms=lambda: 0)
    healing = Healing(
        1, [GROUP], [], cast("Clock", clock), cast("Ask", None), cast("Groups", groups)
    )
    healing.installed(GROUP)
    assert (list(healing.patients), healing.silent) == ([GROUP], set())
    core.tracker.members = voter
    healing.installed(GROUP)
    assert (list(healing.patients), healed) == ([], [GROUP])


@pytest.mark.parametrize("kind", [PREVOTE, VOTE])
def test_a_candidate_that_loses_does_not_hide_the_leader(kind: int) -> None:
    @clustered()
    async def scenario(cluster: Cluster) -> None:
        leader, _ = await filled(cluster)
        hurt = follower(cluster, but=leader)
        other = follower(cluster, but=hurt)
        hurt.kill()
        flip_early(hurt)
        await hurt.start()
        term = leader.member(GROUP).core.term
        campaigns = RaftMessage(kind, other.number, hurt.number, term + 1, log_term=1, index=1)
        hurt.opened.store.consensus.receive(GROUP, campaigns)
        await cluster.until(lambda: is_healed(hurt))
        voted = hurt.opened.store.journal.hard_state(GROUP).term
        assert voted == term if kind == PREVOTE else voted > term

    scenario()


@pytest.mark.parametrize("offset", [2, 9, 40], ids=["name", "version", "record"])
def test_a_damaged_snapshot_heals_the_same_way(offset: int) -> None:
    @clustered()
    async def scenario(cluster: Cluster) -> None:
        leader, publisher = await filled(cluster)
        hurt = follower(cluster, but=leader)
        await cluster.until(lambda: hurt.opened.store.journal.snapshot_of(GROUP)[0])
        name = hurt.opened.store.journal.snapshot_of(GROUP)[2]
        hurt.kill()
        hurt.disk.flip(name, offset)
        await hurt.start()
        assert set(hurt.opened.store.consensus.healing.silent) == {GROUP}
        await cluster.until(lambda: is_healed(hurt))
        await level(cluster)
        assert await bodies_at(hurt) == publisher.acked

    scenario()


@clustered(data_groups=3)
async def test_a_store_that_lost_every_group_makes_none_up_and_heals_all(
    cluster: Cluster,
) -> None:
    leader, publisher = await filled(cluster)
    groups = leader.opened.store.groups
    hurt = follower(cluster, but=leader)
    hurt.kill()
    hurt.disk.overwrite(segments(hurt)[0], 4096, bytes(8_000))
    await hurt.start()
    healing = hurt.opened.store.consensus.healing
    assert set(healing.silent) == set(groups) == set(hurt.opened.store.groups)
    await cluster.until(lambda: not healing.patients)
    for group in groups:
        assert hurt.number in hurt.member(group).core.tracker.members.voters
    await level(cluster)
    assert await bodies_at(hurt) == publisher.acked


async def below_the_checkpoint(
    cluster: Cluster, hurting: Callable[[Node], None] = flip_early
) -> tuple[Node, Publisher]:
    """A follower that was started with a message unreadable in a sealed segment."""
    leader, publisher = await filled(cluster, 150)
    hurt = follower(cluster, but=leader)
    journal = hurt.opened.store.journal
    await cluster.until(lambda: journal.last_checkpoint.position.segment > 2)
    await cluster.until(lambda: locations_name(1) in names(hurt))
    hurt.kill()
    hurting(hurt)
    await hurt.start()
    assert not hurt.opened.store.consensus.healing.patients
    return hurt, publisher


@clustered()
async def test_what_the_disk_does_not_read_heals_as_what_was_changed(cluster: Cluster) -> None:
    """At first it is asked again; what reads then has cost nothing."""
    hurt, publisher = await below_the_checkpoint(cluster, spoil_early)
    await level(cluster)
    store = hurt.opened.store
    lost = next(index for index in range(3, 12) if damaged(hurt, index))
    store.fetch(GROUP, lost, lambda: pytest.fail("it was read"))
    began = cluster.loop.time()
    await cluster.until(lambda: hurt.fatal, seconds=2 * sum(PAUSES_SECONDS))
    assert cluster.loop.time() - began >= sum(PAUSES_SECONDS)
    ((sentence, error),) = hurt.fatal
    assert sentence == f"entry {lost} of group 1 could not be read"
    assert isinstance(error, RecordUnread)
    hurt.crash()
    hurt.fatal.clear()
    await hurt.start()
    assert GROUP in hurt.opened.store.consensus.healing.silent
    await cluster.until(lambda: is_healed(hurt))
    await level(cluster)
    assert await bodies_at(hurt) == publisher.acked
    assert not hurt.fatal


@clustered()
async def test_what_reads_again_soon_hurts_no_replica(cluster: Cluster) -> None:
    hurt, publisher = await below_the_checkpoint(cluster, spoil_early)
    lost = next(index for index in range(3, 12) if damaged(hurt, index))
    read: list[int] = []
    hurt.opened.store.fetch(GROUP, lost, lambda: read.append(lost))
    await asyncio.sleep(sum(PAUSES_SECONDS[:2]))
    assert not read
    for name in segments(hurt):
        hurt.disk.mend(name)
    await cluster.until(lambda: read, seconds=sum(PAUSES_SECONDS))
    assert not hurt.fatal
    assert not hurt.opened.store.journal.damaged
    assert await bodies_at(hurt) == publisher.acked


def names(node: Node) -> list[str]:
    return [f"journal/{name}" for name in node.disk.names("journal")]


def test_what_is_unreadable_below_the_checkpoint_is_noticed_when_read() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.start()
        hurt, publisher = await below_the_checkpoint(cluster)
        await level(cluster)
        store = hurt.opened.store
        lost = next(index for index in range(3, 12) if damaged(hurt, index))
        store.fetch(GROUP, lost, lambda: pytest.fail("it was read"))
        await cluster.until(lambda: hurt.fatal)
        ((sentence, error),) = hurt.fatal
        assert sentence == f"entry {lost} of group 1 could not be read"
        assert isinstance(error, RecordDamaged)
        hurt.crash()  # at once: the disk knows already
        hurt.fatal.clear()
        await hurt.start()
        assert GROUP in hurt.opened.store.consensus.healing.silent
        await cluster.until(lambda: is_healed(hurt))
        await level(cluster)
        assert await bodies_at(hurt) == publisher.acked
        assert not hurt.fatal

    with Cluster() as cluster:
        cluster.loop.run_until_complete(test(cluster))
        assert not cluster.loop.errors


def damaged(node: Node, index: int) -> bool:
    try:
        node.opened.store.journal.read(GROUP, index)
    except RecordDamaged:
        return True
    return False


@clustered()
async def test_without_location_files_it_is_noticed_at_the_start(cluster: Cluster) -> None:
    await noticed_at_the_start(cluster, flip_early)


@clustered()
async def test_so_is_what_the_disk_does_not_read(cluster: Cluster) -> None:
    await noticed_at_the_start(cluster, spoil_early)


async def noticed_at_the_start(cluster: Cluster, hurting: Callable[[Node], None]) -> None:
    leader, publisher = await filled(cluster, 150)
    hurt = follower(cluster, but=leader)
    journal = hurt.opened.store.journal
    await cluster.until(lambda: journal.last_checkpoint.position.segment > 2)
    hurt.kill()
    for name in names(hurt):
        if name.endswith(".loc"):
            hurt.disk.remove(name)
    hurting(hurt)
    for _ in range(2):
        await hurt.start()
        assert GROUP in hurt.opened.store.consensus.healing.silent
        # At once: the disk knows already, whatever of the damage is removed meanwhile.
        hurt.crash()
        checkpoint = Checkpoint.read(hurt.disk)
        assert checkpoint is not None
        assert GROUP in checkpoint.damaged
        assert not checkpoint.groups[GROUP].snapshot
    await hurt.start()
    await cluster.until(lambda: is_healed(hurt))
    await level(cluster)
    assert await bodies_at(hurt) == publisher.acked


@clustered()
async def test_a_hole_at_the_end_of_the_journal_is_healed(cluster: Cluster) -> None:
    """Zeros where the last records stood: without the mark of them they would be the end, and what
    this store has acknowledged would be forgotten.
    """
    leader, publisher = await filled(cluster)
    hurt = follower(cluster, but=leader)
    journal = hurt.opened.store.journal
    await cluster.until(lambda: journal.last_index(GROUP) == leader.opened.store.applied(GROUP))
    hurt.kill()
    used = [each for each in segments(hurt) if len(hurt.disk.content(each).rstrip(b"\0")) > 4096]
    name = used[-1]
    end = len(hurt.disk.content(name).rstrip(b"\0"))
    hurt.disk.overwrite(name, max(4096, end - 2_000), bytes(2_000))
    await hurt.start()
    assert GROUP in hurt.opened.store.consensus.healing.silent
    await cluster.until(lambda: is_healed(hurt))
    await level(cluster)
    assert await bodies_at(hurt) == publisher.acked


@clustered()
async def test_an_older_copy_of_a_directory_is_noticed_by_what_the_leader_says_and_heals(
    cluster: Cluster,
) -> None:
    """Before, it went on without a word: it followed no more, and voted as if it had everything."""
    leader, publisher = await filled(cluster)
    hurt = follower(cluster, but=leader)
    hurt.kill()
    copy = hurt.disk.killed_copy()
    await hurt.start()
    await publisher.published(leader, [b"acknowledged"])
    await level(cluster)
    hurt.kill()
    hurt.disk = copy
    await hurt.start()
    await cluster.until(lambda: hurt.fatal)
    ((sentence, error),) = hurt.fatal
    hurt.fatal.clear()
    assert "the disk has lost some of the log of group" in sentence
    assert isinstance(error, LogDamaged)
    hurt.kill()
    await hurt.start()
    assert hurt.opened.store.consensus.healing.silent
    await cluster.until(lambda: not hurt.opened.store.consensus.healing.patients)
    await publisher.published(leader, [b"afterwards"])
    await level(cluster)
    assert await bodies_at(hurt) == publisher.acked
    assert len({state_hash(node) for node in cluster.running()}) == 1


@clustered(nodes=1)
async def test_a_store_that_is_alone_refuses_to_start(cluster: Cluster) -> None:
    node, _ = await filled(cluster)
    node.kill()
    flip_early(node)
    before = {name: node.disk.content(name) for name in segments(node)}
    with pytest.raises(JournalDamaged, match="group 1: 1 record unreadable after being synced"):
        await node.start()
    assert {name: node.disk.content(name) for name in segments(node)} == before


@clustered(nodes=2)
async def test_two_stores_cannot_heal_each_other_and_the_damaged_one_refuses_to_start(
    cluster: Cluster,
) -> None:
    leader, _ = await filled(cluster)
    hurt = follower(cluster, but=leader)
    await cluster.until(lambda: members_at_snapshot(hurt) == (1, 2))
    await refuses_to_start_once_damaged(hurt)


@clustered(nodes=2)
async def test_a_store_that_others_have_left_gives_up_what_does_not_read(cluster: Cluster) -> None:
    leader, publisher = await filled(cluster)
    await cluster.until(lambda: members_at_snapshot(leader) == (1, 2))
    for group in leader.opened.store.groups:
        if not leader.member(group).leads:
            leader.member(group).core.campaign()
            await cluster.until(lambda group=group: leader.member(group).serves)
        await cluster.change(group, Change(REMOVE, 3 - leader.number))
    await cluster.until(lambda: members_at_snapshot(leader) == (leader.number,), seconds=3)
    spoil_below_the_checkpoint(leader)
    await leader.start()
    (loss,) = leader.opened.store.unreadable.losses.all()
    assert loss.group == GROUP
    kept = await bodies_at(leader)
    assert len(kept) == len(publisher.acked) - loss.messages < len(publisher.acked)


def members_at_snapshot(node: Node) -> tuple[int, ...]:
    snapshot = node.member(GROUP).log.snapshot()
    return snapshot.membership.voters if snapshot is not None else ()


def spoil_below_the_checkpoint(node: Node) -> None:
    """Kill it, and have the next start read what is damaged."""
    node.kill()
    for name in names(node):
        if name.endswith(".loc"):
            node.disk.remove(name)
    flip_early(node)


async def refuses_to_start_once_damaged(node: Node) -> None:
    """And leaves what its disk holds as it is."""
    spoil_below_the_checkpoint(node)
    before = {name: node.disk.content(name) for name in segments(node)}
    with pytest.raises(JournalDamaged, match="group 1: "):
        await node.start()
    there = [name for name in segments(node) if name in before]
    assert there[0] == segments(node)[0], "but for segments that hold nothing"
    assert [node.disk.content(name) for name in there] == [before[name] for name in there]


@pytest.mark.parametrize(
    ("voters", "outgoing", "heals"),
    [
        ((1, 2, 3), (), True),
        ((1, 2), (), False),
        ((1,), (), False),
        ((1, 2, 3), (1, 2), False),
        ((2, 3), (), True),
        ((2,), (), True),
    ],
)
def test_what_others_cannot_heal_without_this_store_is_not_given_up(
    voters: tuple[int, ...], outgoing: tuple[int, ...], *, heals: bool
) -> None:
    state = GroupState(GROUP)
    state.membership = Membership(voters, outgoing)
    others = Others(1, None, {GROUP: state})
    assert others.have(GROUP) is heals
    # Its own members are not known of a group whose snapshot does not read.
    assert others.have(RaftGroup(2)) is ({*voters, *outgoing} != {1})


@clustered()
async def test_a_damaged_replica_that_was_removed_can_be_taken_in_again(cluster: Cluster) -> None:
    leader, publisher = await filled(cluster)
    hurt = follower(cluster, but=leader)
    hurt.kill()
    await cluster.change(GROUP, Change(REMOVE, hurt.number))
    flip_early(hurt)
    await hurt.start()
    await cluster.change(GROUP, Change(ADD_LEARNER, hurt.number))
    await cluster.until(lambda: is_healed(hurt))
    await level(cluster)
    assert await bodies_at(hurt) == publisher.acked


@clustered()
async def test_a_replica_that_knows_no_member_votes_for_nobody(cluster: Cluster) -> None:
    """It is new, or has lost its disk and with it the votes it gave."""
    await cluster.led()
    new = cluster.add(4)
    await new.start()
    core = new.member(GROUP).core
    for kind in (PREVOTE, VOTE):
        core.step(RaftMessage(kind, 1, 4, 90, log_term=80, index=1_000))
        assert not core.vote
        assert not core.after_sync
