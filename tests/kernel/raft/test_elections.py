"""Who leads, and when: timeouts, votes, pre-votes, quorum checks, transfers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernel.raft import messages
from kernel.raft.errors import NotLeader, TransferUnderWay
from kernel.raft.messages import CANDIDATE, FOLLOWER, LEADER, PRE_CANDIDATE, RaftMessage
from kernel.raft.options import RaftOptions

from .group import OPTIONS, Group


def test_a_follower_campaigns_after_its_own_timeout_and_not_before() -> None:
    group = Group(3)
    member = group[2]
    member.jitter = 4
    member.restart()
    group.tick(OPTIONS.election_ticks + 3, [2])
    assert member.core.role == FOLLOWER
    group.tick(1, [2])
    assert member.core.role == LEADER


def test_a_leader_keeps_its_followers_from_campaigning() -> None:
    group = Group(3)
    leader = group.elect(1)
    group.tick(5 * OPTIONS.election_ticks)
    assert leader.role == LEADER
    assert leader.term == 1
    assert [group.core(node).leader for node in (1, 2, 3)] == [1, 1, 1]


def test_a_node_that_comes_back_from_a_partition_does_not_disturb_the_term() -> None:
    group = Group(3)
    leader = group.elect(1)
    group.cut = {3}
    group.tick(50)
    assert group.core(3).role == PRE_CANDIDATE
    assert group.core(3).term == 1
    group.cut = set()
    group.tick(2)
    assert leader.role == LEADER
    assert leader.term == 1
    assert group.core(3).leader == 1


def test_a_leader_that_hears_no_quorum_steps_down_within_two_timeouts() -> None:
    group = Group(3)
    leader = group.elect(1)
    group.cut = {1}
    group.tick(2 * OPTIONS.election_ticks, [1])
    assert leader.role == FOLLOWER
    with pytest.raises(NotLeader):
        leader.propose([b"x"])


def test_a_leader_that_hears_one_of_two_followers_stays() -> None:
    group = Group(3)
    leader = group.elect(1)
    group.cut = {3}
    group.tick(5 * OPTIONS.election_ticks, [1])
    assert leader.role == LEADER


def test_a_follower_with_a_leader_grants_no_vote_but_to_a_transfer() -> None:
    group = Group(3)
    group.elect(1)
    follower = group[2]
    ask = RaftMessage(messages.VOTE, 3, 2, 5, log_term=9, index=9)
    follower.core.step(ask)
    assert not follower.core.has_ready()
    assert follower.core.term == 1
    follower.core.step(replace(ask, forced=True))
    follower.turn()
    assert follower.core.term == 5
    assert follower.core.vote == 3


def test_a_candidate_counts_its_own_vote_once_it_is_on_disk() -> None:
    group = Group(2, replace(OPTIONS, pre_vote=False))
    group[1].syncing = False
    group.core(1).campaign()
    group.run()
    assert group.core(1).role == CANDIDATE
    group[1].sync()
    assert group.core(1).role == LEADER
    assert group[1].hard_state.vote == 1


def test_nobody_leads_by_the_votes_of_others_before_its_own_is_on_disk() -> None:
    """Else it leads that term once more after a crash, and its log has two entries of one place."""
    group = Group(3, replace(OPTIONS, pre_vote=False))
    group[1].syncing = False
    group.core(1).campaign()
    group.run()
    assert (group[2].hard_state.vote, group[3].hard_state.vote) == (1, 1)
    assert group.core(1).role == CANDIDATE
    group[1].restart()
    assert group.core(1).term == 0
    group.core(1).campaign()
    group.run()
    group[1].sync()
    assert (group.core(1).role, group.core(1).term) == (LEADER, 1)


def test_a_vote_is_given_once_a_term_also_over_a_restart() -> None:
    group = Group(3, replace(OPTIONS, pre_vote=False))
    voter = group[3]
    voter.core.step(RaftMessage(messages.VOTE, 1, 3, 1))
    voter.turn()
    assert [each.reject for each in voter.outbox] == [False]
    voter.restart()
    for candidate, refused in ((2, True), (1, False)):
        voter.core.step(RaftMessage(messages.VOTE, candidate, 3, 1))
        voter.turn()
        assert voter.outbox.pop().reject is refused


def test_a_vote_waits_for_the_disk() -> None:
    group = Group(3, replace(OPTIONS, pre_vote=False))
    group.core(3).step(RaftMessage(messages.VOTE, 1, 3, 1))
    ready = group.core(3).ready()
    assert ready.must_sync
    assert ready.hard_state is not None
    assert ready.hard_state.vote == 1
    assert not ready.messages_now
    assert [each.kind for each in ready.messages_after_sync] == [messages.VOTE_ANSWER]


def test_a_shorter_log_gets_no_vote() -> None:
    group = Group(3)
    leader = group.elect(1)
    group.cut = {3}
    leader.propose([b"x"])
    group.run()
    group.cut = {1}
    group.core(3).campaign()
    group.run()
    assert group.core(3).role != LEADER
    group.tick(2 * OPTIONS.election_ticks, [2, 3])
    assert group.core(2).role == LEADER


def test_leadership_goes_to_a_level_follower_at_once() -> None:
    group = Group(3)
    leader = group.elect(1)
    leader.transfer(3)
    with pytest.raises(TransferUnderWay):
        leader.propose([b"x"])
    group.run()
    assert group.core(3).role == LEADER
    assert leader.role == FOLLOWER


def test_a_follower_that_is_behind_is_brought_level_first() -> None:
    group = Group(3)
    leader = group.elect(1)
    group.cut = {3}
    leader.propose([b"x"])
    group.run()
    group.cut = set()
    leader.transfer(3)
    group.tick(2)
    assert group.core(3).role == LEADER
    assert group[3].bodies == [b"x"]


def test_a_transfer_to_a_dead_node_is_given_up_after_an_election_timeout() -> None:
    group = Group(3)
    leader = group.elect(1)
    group.cut = {3}
    leader.transfer(3)
    group.tick(OPTIONS.election_ticks - 1, [1])
    with pytest.raises(TransferUnderWay):
        leader.propose([b"x"])
    group.tick(1, [1])
    leader.propose([b"x"])
    group.run()
    assert group[1].bodies == [b"x"]


def test_a_follower_passes_a_transfer_on_and_a_learner_is_no_target() -> None:
    group = Group(3)
    leader = group.elect(1)
    group.core(2).transfer(3)
    group.run()
    assert group.core(3).role == LEADER
    assert leader.role == FOLLOWER
    group.core(3).tracker.progress[2].learner = True
    group.core(3).transfer(2)
    assert not group.core(3).transferee


def test_who_forgot_the_leader_grants_votes_again() -> None:
    group = Group(3)
    group.elect(1)
    assert not group.core(1).forget_leader()
    assert group.core(2).forget_leader()
    group.core(3).campaign()
    group.run()
    assert group.core(3).role == LEADER


@pytest.mark.parametrize(
    "wrong",
    [
        {"node": 0},
        {"heartbeat_ticks": 10},
        {"heartbeat_ticks": 0},
        {"lease_reads": True, "check_quorum": False},
        {"max_message_bytes": 0},
    ],
)
def test_settings_that_do_not_go_together_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        RaftOptions(**{"node": 1, **wrong})  # type: ignore[arg-type]
