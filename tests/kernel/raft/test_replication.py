"""Sending: windows and bounds, entries that are not in memory, snapshots, hints."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernel.raft import messages
from kernel.raft.errors import NotLeader, ProposalsFull, UnknownSender
from kernel.raft.members.progress import PROBE, REPLICATE, SNAPSHOTTING
from kernel.raft.messages import ENTRY_OVERHEAD_BYTES, RaftMessage

from .group import OPTIONS, Group

BODY = bytes(1000)
ENTRY_BYTES = len(BODY) + ENTRY_OVERHEAD_BYTES


def test_proposals_are_applied_everywhere_in_their_order() -> None:
    group = Group(3)
    leader = group.elect(1)
    assert leader.propose([b"a", b"b"]) == 2
    assert leader.propose([b"c"]) == 4
    group.run()
    assert [group[node].bodies for node in (1, 2, 3)] == [[b"a", b"b", b"c"]] * 3


def test_a_proposal_of_nothing_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="no entries"):
        Group(1).elect(1).propose([])


def test_bodies_are_never_copied() -> None:
    group = Group(3)
    leader = group.elect(1)
    body = bytes(100)
    leader.propose([body])
    group.run()
    assert all(group[node].bodies[0] is body for node in (1, 2, 3))


def test_a_follower_refuses_or_forwards_a_proposal_as_it_is_set() -> None:
    group = Group(3)
    group.elect(1)
    with pytest.raises(NotLeader) as caught:
        group.core(2).propose([b"x"])
    assert caught.value.leader == 1
    group = Group(3, replace(OPTIONS, forward_proposals=True))
    with pytest.raises(NotLeader):
        group.core(2).propose([b"x"])
    group.elect(1)
    assert group.core(2).propose([b"x"]) == 0
    group.run()
    assert group[3].bodies == [b"x"]


def test_what_is_proposed_and_not_committed_is_bounded() -> None:
    group = Group(3, replace(OPTIONS, max_uncommitted_bytes=3 * ENTRY_BYTES))
    leader = group.elect(1)
    group.cut = {2, 3}
    leader.propose([BODY] * 2)
    leader.propose([BODY])
    with pytest.raises(ProposalsFull, match="limit"):
        leader.propose([b""])
    assert leader.log.last_index == 4
    group.cut = set()
    leader.report_unreachable(2)
    group.tick(2)
    assert group[1].bodies == [BODY] * 3
    leader.propose([BODY])


def test_a_proposal_larger_than_the_bound_passes_alone() -> None:
    group = Group(3, replace(OPTIONS, max_uncommitted_bytes=100))
    leader = group.elect(1)
    leader.propose([BODY])
    with pytest.raises(ProposalsFull):
        leader.propose([b"x"])
    group.run()
    leader.propose([b"x"])


def test_appends_under_way_are_bounded_in_number_and_go_on_with_the_answer() -> None:
    group = Group(2, replace(OPTIONS, max_inflight_messages=3))
    leader = group.elect(1)
    group.forget()
    for number in range(10):
        leader.propose([b"%d" % number])
    sent = [each for each in leader.ready().messages_now if each.kind == messages.APPEND]
    assert len(sent) == 3
    assert leader.tracker.progress[2].inflights.full
    for each in sent:
        group.core(2).step(each)
    group[1].syncing = True
    group[1].sync()
    group.run()
    assert leader.tracker.progress[2].match == 11


def test_appends_under_way_are_bounded_in_bytes() -> None:
    bound = 2 * ENTRY_BYTES
    group = Group(2, replace(OPTIONS, max_inflight_bytes=bound, max_message_bytes=ENTRY_BYTES))
    leader = group.elect(1)
    leader.propose([BODY] * 10)
    for _ in range(10):
        leader.propose([BODY])
    sent = leader.ready().messages_now
    assert [len(each.entries) for each in sent] == [1, 1]
    assert leader.tracker.progress[2].inflights.bytes == bound


def test_an_append_carries_what_fits_and_one_entry_at_least() -> None:
    group = Group(2, replace(OPTIONS, max_message_bytes=2 * ENTRY_BYTES))
    leader = group.elect(1)
    group.forget()
    leader.propose([bytes(5000), BODY, BODY, BODY])
    group.run()
    counts = [len(each.entries) for each in group.kinds(messages.APPEND) if each.entries]
    assert counts == [1, 2, 1]
    assert len(group[2].bodies) == 4


def test_a_rejection_finds_the_end_of_a_long_wrong_tail_in_one_answer_a_term() -> None:
    group = Group(3)
    leader = group.elect(1)
    group.cut = {1}
    leader.propose([b"wrong"] * 500)
    group[1].turn()
    group.core(3).forget_leader()
    group.core(2).forget_leader()
    group.elect(2).propose([b"right"] * 20)
    group.run()
    group.cut = set()
    group.forget()
    group.tick(2)
    rejected = [each for each in group.kinds(messages.APPEND_ANSWER, 2) if each.reject]
    assert len(rejected) <= 2
    assert group[1].bodies == [b"right"] * 20


# --- Entries that are not in memory ---------------------------------------------------------


def _behind(options_bytes: int = 1 << 20) -> Group:
    """Node 3 lacks ten entries, which node 1's storage holds on disk alone."""
    group = Group(3, replace(OPTIONS, max_message_bytes=options_bytes))
    leader = group.elect(1)
    group.cut = {3}
    for number in range(10):
        leader.propose([b"%d" % number])
        group.run()
    group[1].storage.resident = lambda _index: False
    group.cut = set()
    leader.report_unreachable(3)
    group.tick(2, [1])
    return group


def test_entries_that_are_not_in_memory_are_asked_for_once() -> None:
    group = _behind()
    assert [(each.low, each.node) for each in group[1].wanted] == [(2, 3)]
    group.tick(5, [1])
    assert len(group[1].wanted) == 1
    assert not group.core(1).has_ready()
    assert group.core(1).status().members[2].reading


def test_others_do_not_wait_for_a_read() -> None:
    group = _behind()
    group.core(1).propose([b"more"])
    group.run()
    assert group[2].bodies[-1] == b"more"
    assert group[3].bodies == []


def test_a_member_goes_on_once_its_entries_are_loaded() -> None:
    group = _behind()
    group[1].storage.resident = lambda index: index < 6
    wanted = group[1].wanted.pop()
    group.core(1).loaded(wanted)
    group.run()
    assert group.core(3).log.last_index == 5
    assert group[1].wanted[0].low == 6
    group[1].storage.resident = lambda _index: True
    group.core(1).loaded(group[1].wanted.pop())
    group.run()
    assert group[3].bodies == group[1].bodies
    assert group.core(1).tracker.progress[3].state == REPLICATE


def test_a_read_that_has_failed_is_asked_for_again() -> None:
    group = _behind()
    group.core(1).loaded(group[1].wanted.pop())
    group.run()
    assert [(each.low, each.node) for each in group[1].wanted] == [(2, 3)]


def test_a_read_for_a_leader_of_before_is_nothing() -> None:
    group = _behind()
    wanted = group[1].wanted.pop()
    group.core(1).become_follower(5, 0)
    group.core(1).loaded(wanted)
    assert not group[1].wanted


def test_committed_entries_that_are_not_in_memory_are_read_before_they_are_applied() -> None:
    group = Group(1)
    core = group.elect(1)
    core.propose([b"a", b"b"])
    group.run()
    member = group[1]
    member.storage.resident = lambda _index: False
    member.restart()
    group.elect(1)
    assert member.applied == []
    assert [(each.low, each.node) for each in member.wanted] == [(1, 0)]
    assert not member.core.has_ready()
    member.storage.resident = lambda _index: True
    member.core.loaded(member.wanted.pop())
    group.run()
    assert member.bodies == [b"a", b"b"]


# --- Snapshots ------------------------------------------------------------------------------


def _needs_snapshot() -> Group:
    """Node 3 lacks what node 1 has compacted away; the snapshot to it is `held`."""
    group = Group(3)
    leader = group.elect(1)
    group.cut = {3}
    leader.propose([b"a", b"b"])
    group.run()
    group[1].snapshot()
    group.cut = set()
    group.hold = {messages.SNAPSHOT}
    leader.report_unreachable(3)
    group.tick(2, [1])
    assert [(each.to, each.kind) for each in group.held] == [(3, messages.SNAPSHOT)]
    progress = leader.tracker.progress[3]
    assert (progress.state, progress.pending_snapshot) == (SNAPSHOTTING, 3)
    return group


def test_a_member_that_needs_what_is_compacted_gets_a_snapshot_and_goes_on() -> None:
    group = _needs_snapshot()
    group.core(3).step(group.held.pop())
    group.run()
    assert group.core(3).log.applied == 3
    assert group.core(1).tracker.progress[3].state == REPLICATE
    group.core(1).propose([b"c"])
    group.run()
    assert group[3].bodies == [b"c"]


def test_a_snapshot_replaces_the_log_only_once_it_is_installed() -> None:
    group = _needs_snapshot()
    group[3].syncing = False
    group.core(3).step(group.held.pop())
    group.run()
    core = group.core(3)
    assert core.log.snapshot is not None
    assert core.log.applied == 1
    assert not core.campaign()
    assert group.core(1).tracker.progress[3].state == SNAPSHOTTING
    group[3].sync()
    group.run()
    assert core.log.snapshot is None
    assert core.log.applied == 3
    assert group.core(1).tracker.progress[3].state == REPLICATE


def test_nothing_is_sent_while_a_snapshot_is_under_way() -> None:
    group = _needs_snapshot()
    group.forget()
    group.core(1).propose([b"c"])
    group.tick(3, [1])
    assert not group.kinds(messages.APPEND, 3)
    assert len(group.held) == 1


def test_a_snapshot_that_failed_is_sent_again_with_the_next_heartbeat() -> None:
    group = _needs_snapshot()
    group.hold = set()
    group.core(1).report_snapshot(3, installed=False)
    group.run()
    assert not group.kinds(messages.SNAPSHOT)
    group.tick(2, [1])
    assert len(group.kinds(messages.SNAPSHOT)) == 1
    assert group.core(3).log.applied == 3


def test_after_a_snapshot_was_installed_the_leader_waits_for_the_members_answer() -> None:
    group = _needs_snapshot()
    group.core(1).report_snapshot(3, installed=True)
    progress = group.core(1).tracker.progress[3]
    assert (progress.state, progress.next, progress.is_paused) == (PROBE, 4, True)
    group.core(3).step(group.held.pop())
    group.run()
    assert progress.state == REPLICATE
    assert progress.match == 3


def test_a_snapshot_from_before_a_member_was_added_is_not_sent_to_it() -> None:
    group = _needs_snapshot()
    group.hold = set()
    group.core(1).report_snapshot(3, installed=False)
    latest = group[1].storage.latest
    group[1].storage.latest = replace(latest, membership=replace(latest.membership, voters=(1, 2)))
    group.tick(3, [1])
    assert not group.kinds(messages.SNAPSHOT)
    assert group.core(1).tracker.progress[3].state == PROBE


def test_a_repeated_snapshot_changes_nothing() -> None:
    group = _needs_snapshot()
    group.core(3).step(group.held[0])
    group.run()
    group.core(3).step(group.held[0])
    assert group.core(3).log.snapshot is None
    assert [each.index for each in group.core(3).ready().messages_after_sync] == [3]


# --- Odds and ends --------------------------------------------------------------------------


def test_an_answer_of_a_node_that_is_no_member_is_refused() -> None:
    group = Group(3)
    leader = group.elect(1)
    with pytest.raises(UnknownSender):
        leader.step(RaftMessage(messages.APPEND_ANSWER, 9, 1, 1, index=1))


def test_an_answer_for_entries_that_were_never_sent_counts_for_nothing() -> None:
    group = Group(3)
    leader = group.elect(1)
    leader.step(RaftMessage(messages.APPEND_ANSWER, 2, 1, 1, index=99))
    assert leader.tracker.progress[2].match == 1
    assert leader.log.committed == 1


def test_what_is_handed_out_to_be_applied_is_bounded() -> None:
    group = Group(1, replace(OPTIONS, max_applying_bytes=2 * ENTRY_BYTES))
    core = group.elect(1)
    core.propose([BODY] * 5)
    core.stable(core.ready().number)
    first = core.ready().committed
    assert len(first) == 2
    assert not core.ready().committed
    core.applied(first[-1].index)
    assert len(core.ready().committed) == 2
