"""Reads that see what was committed before they were asked for: by a round of heartbeats, or by a
lease that neither a pause nor a transfer outlives. And what `holds_lease` says to a dispatcher.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernel.raft import messages
from kernel.raft.errors import NotLeader, ReadsFull
from kernel.raft.messages import LEADER, RaftMessage, ReadState

from .group import OPTIONS, Group

LEASES = replace(OPTIONS, lease_reads=True)
OLDEST = OPTIONS.election_ticks - 2
"""A lease is good for so many ticks after the heartbeat that a quorum has answered."""


def test_a_read_at_the_leader_is_served_after_a_round_of_heartbeats() -> None:
    group = Group(3)
    leader = group.elect(1)
    leader.read_index(b"r")
    group[1].turn()
    assert not group[1].reads
    group.run()
    assert group[1].reads == [ReadState(1, b"r")]


def test_a_read_at_a_follower_comes_back_to_it() -> None:
    group = Group(3)
    leader = group.elect(1)
    leader.propose([b"x"])
    group.run()
    group.core(3).read_index(b"r")
    group.run()
    assert group[3].reads == [ReadState(2, b"r")]
    assert not group[1].reads


def test_a_leader_that_was_replaced_serves_no_read() -> None:
    group = Group(3)
    old = group.elect(1)
    group.cut = {1}
    group.core(3).forget_leader()
    group.elect(2).propose([b"new"])
    group.run()
    old.read_index(b"r")
    group.tick(2, [1])
    assert not group[1].reads
    group.cut = set()
    group.tick(2)
    assert not group[1].reads


def test_a_read_waits_for_the_first_commit_of_the_term() -> None:
    group = Group(3)
    group.hold = {messages.APPEND}
    leader = group.elect(1)
    leader.read_index(b"r")
    group.run()
    assert not group[1].reads
    group.hold = set()
    for each in group.held:
        group.core(each.to).step(each)
    group.run()
    assert group[1].reads == [ReadState(1, b"r")]


def test_a_round_confirms_the_reads_before_it_too() -> None:
    group = Group(3)
    leader = group.elect(1)
    leader.read_index(b"first")
    leader.read_index(b"second")
    ready = leader.ready()
    for each in ready.messages_now:
        if each.context == b"second":
            group.core(each.to).step(each)
    group.run()
    assert [each.context for each in group[1].reads] == [b"first", b"second"]


def test_one_answer_of_five_voters_confirms_no_read() -> None:
    group = Group(5)
    leader = group.elect(1)
    group.cut = {3, 4, 5}
    leader.read_index(b"r")
    group.run()
    assert not group[1].reads
    group.cut = {4, 5}
    group.tick(1, [1])
    assert group[1].reads == [ReadState(1, b"r")]


def test_a_lost_round_goes_again_with_the_next_heartbeat() -> None:
    group = Group(3)
    leader = group.elect(1)
    group.cut = {1}
    leader.read_index(b"r")
    group.run()
    group.cut = set()
    group.tick(1, [1])
    assert group[1].reads == [ReadState(1, b"r")]


def test_one_voter_serves_reads_by_itself() -> None:
    group = Group(1)
    group.elect(1).read_index(b"r")
    group.run()
    assert group[1].reads == [ReadState(1, b"r")]
    assert group.core(1).holds_lease()


def test_reads_that_wait_are_bounded() -> None:
    group = Group(3, replace(OPTIONS, max_pending_reads=2))
    leader = group.elect(1)
    leader.read_index(b"1")
    leader.read_index(b"2")
    with pytest.raises(ReadsFull):
        leader.read_index(b"3")
    group.run()
    leader.read_index(b"3")


def test_a_read_needs_a_leader_and_a_context() -> None:
    group = Group(3)
    with pytest.raises(NotLeader):
        group.core(2).read_index(b"r")
    with pytest.raises(ValueError, match="context"):
        group.core(2).read_index(b"")


def _leased() -> Group:
    group = Group(3, LEASES)
    group.elect(1)
    group.tick(1)
    return group


def test_a_lease_serves_a_read_without_a_round() -> None:
    group = _leased()
    group.forget()
    group.core(1).read_index(b"r")
    group.run()
    assert group[1].reads == [ReadState(1, b"r")]
    assert not group.kinds(messages.HEARTBEAT)


def test_a_lease_ends_when_no_quorum_answers() -> None:
    group = _leased()
    leader = group.core(1)
    group.cut = {1}
    group.tick(OLDEST, [1])
    assert leader.holds_lease()
    group.tick(1, [1])
    assert not leader.holds_lease()
    assert leader.role == LEADER
    leader.read_index(b"r")
    group.run()
    assert not group[1].reads


def test_a_pause_of_the_process_ends_the_lease_before_anything_is_read() -> None:
    group = _leased()
    leader = group.core(1)
    # The process stood still: another leads by now, and this one has not heard of it.
    leader.tick(OPTIONS.election_ticks - 1)
    assert leader.role == LEADER
    assert not leader.holds_lease()
    leader.read_index(b"r")
    assert not leader.read_states


def test_a_late_answer_to_an_old_heartbeat_gives_no_new_lease() -> None:
    group = _leased()
    leader = group.core(1)
    group.hold = {messages.HEARTBEAT_ANSWER}
    group.tick(1, [1])
    group.tick(OLDEST + 1, [1])
    old = [each for each in group.held if each.stamp == min(each.stamp for each in group.held)]
    for each in old:
        leader.step(each)
    assert not leader.holds_lease()
    leader.step(group.held[-1])
    assert leader.holds_lease()


def test_a_stamp_from_the_future_counts_as_now() -> None:
    group = _leased()
    leader = group.core(1)
    leader.step(RaftMessage(messages.HEARTBEAT_ANSWER, 2, 1, 1, stamp=1 << 40))
    assert leader.tracker.progress[2].stamp == leader.ticks


def test_who_was_told_to_campaign_ends_the_lease_for_good() -> None:
    group = _leased()
    leader = group.core(1)
    group.hold = {messages.TIMEOUT_NOW}
    leader.transfer(2)
    assert not leader.holds_lease()
    # The transfer is given up, but the word to campaign may still arrive.
    group.tick(OPTIONS.election_ticks, [1])
    assert not leader.transferee
    group.tick(2)
    assert not leader.holds_lease()
    leader.read_index(b"r")
    group.run()
    assert group[1].reads == [ReadState(1, b"r")]


def test_with_leases_no_follower_forgets_its_leader() -> None:
    assert not _leased().core(2).forget_leader()


def test_with_leases_a_restarted_voter_sits_out_an_election_timeout() -> None:
    group = _leased()
    voter = group[3]
    voter.restart()
    voter.turn()
    ask = RaftMessage(messages.PREVOTE, 2, 3, 2, log_term=9, index=9)
    voter.core.step(ask)
    assert not voter.core.has_ready()
    voter.core.tick(OPTIONS.election_ticks)
    voter.core.step(ask)
    answers = [each for each in voter.core.ready().messages_after_sync if each.to == 2]
    assert [each.reject for each in answers] == [False]


def test_without_a_quorum_in_the_last_timeout_nobody_should_dispatch() -> None:
    group = Group(3)
    leader = group.elect(1)
    group.tick(1)
    assert leader.holds_lease()
    assert not group.core(2).holds_lease()
    leader.tick(OLDEST + 1)
    assert not leader.holds_lease()
