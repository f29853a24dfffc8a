"""Members that come, go and are replaced, while the group works; and rest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernel.raft import messages
from kernel.raft.errors import ConfigurationRefused
from kernel.raft.members import configuration
from kernel.raft.members.configuration import (
    ADD_LEARNER,
    ADD_VOTER,
    JOINT_EXPLICIT,
    REMOVE,
    Change,
    ConfigurationChange,
)
from kernel.raft.messages import FOLLOWER, LEADER

from .group import OPTIONS, Group, Member


def _change(*changes: tuple[int, int], transition: int = configuration.AUTO) -> ConfigurationChange:
    return ConfigurationChange(tuple(Change(*each) for each in changes), transition)


def _voters(member: Member) -> tuple[int, ...]:
    return member.core.tracker.members.voters


def test_a_learner_is_caught_up_and_counts_only_once_it_is_promoted() -> None:
    group = Group(2, spare=1)
    leader = group.elect(1)
    leader.propose([b"a"])
    group.run()
    leader.propose_configuration(_change((ADD_LEARNER, 3)))
    group.run()
    assert group.core(3).log.applied == leader.log.applied
    assert group.core(3).tracker.members.learners == (3,)
    assert not group.core(3).campaign()
    group.cut = {2}
    leader.propose([b"b"])
    group.run()
    assert leader.log.committed < leader.log.last_index
    group.cut = set()
    leader.report_unreachable(2)
    group.tick(2)
    leader.propose_configuration(_change((ADD_VOTER, 3)))
    group.run()
    assert _voters(group[3]) == (1, 2, 3)
    group.cut = {2}
    leader.propose([b"c"])
    group.run()
    assert group[1].bodies == [b"a", b"b", b"c"]
    assert group[3].bodies == [b"b", b"c"]


def test_a_replica_is_replaced_in_one_joint_step_that_ends_by_itself() -> None:
    group = Group(3, spare=1)
    leader = group.elect(1)
    leader.propose_configuration(_change((ADD_LEARNER, 4)))
    group.run()
    leader.propose_configuration(_change((ADD_VOTER, 4), (REMOVE, 2)))
    group.run()
    for node in (1, 3, 4):
        assert _voters(group[node]) == (1, 3, 4)
        assert not group.core(node).tracker.members.voters_outgoing


def test_a_joint_configuration_needs_both_majorities() -> None:
    group = Group(3, spare=2)
    leader = group.elect(1)
    change = _change((ADD_VOTER, 4), (ADD_VOTER, 5), (REMOVE, 2), transition=JOINT_EXPLICIT)
    leader.propose_configuration(change)
    group.run()
    assert leader.tracker.members.voters_outgoing == (1, 2, 3)
    group.cut = {4, 5, 3}
    leader.propose([b"x"])
    group.run()
    assert group[1].bodies == []
    group.cut = {2, 4}
    leader.report_unreachable(3)
    leader.report_unreachable(5)
    group.tick(2, [1])
    assert group[1].bodies == [b"x"]
    leader.propose_configuration(ConfigurationChange())
    group.run()
    assert _voters(group[1]) == (1, 3, 4, 5)


def test_a_joint_configuration_ends_although_a_transfer_was_under_way() -> None:
    group = Group(3, replace(OPTIONS, check_quorum=False), spare=1)
    leader = group.elect(1)
    leader.propose_configuration(_change((ADD_VOTER, 4), (ADD_LEARNER, 3)))
    group.cut = {3}
    leader.transfer(3)
    group.run()
    assert leader.tracker.members.voters_outgoing
    group.tick(OPTIONS.election_ticks + 1, [1])
    assert leader.role == LEADER
    assert _voters(group[1]) == (1, 2, 4)


def test_one_change_at_a_time() -> None:
    group = Group(3, spare=1)
    leader = group.elect(1)
    leader.propose_configuration(_change((ADD_VOTER, 4)))
    with pytest.raises(ConfigurationRefused, match="not applied yet"):
        leader.propose_configuration(_change((REMOVE, 2)))
    group.run()
    leader.propose_configuration(_change((REMOVE, 2)))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (ConfigurationChange(), "non-joint"),
        (_change((REMOVE, 1), (REMOVE, 2), (REMOVE, 3)), "removed all voters"),
    ],
)
def test_a_change_that_cannot_fit_is_refused_before_it_is_in_the_log(
    change: ConfigurationChange, why: str
) -> None:
    group = Group(3)
    leader = group.elect(1)
    last = leader.log.last_index
    with pytest.raises(ConfigurationRefused, match=why):
        leader.propose_configuration(change)
    assert leader.log.last_index == last


def test_a_leader_that_is_removed_steps_down_and_cannot_come_back() -> None:
    group = Group(3)
    leader = group.elect(1)
    leader.propose_configuration(_change((REMOVE, 1)))
    group.run()
    assert leader.role == FOLLOWER
    assert not leader.campaign()
    group.tick(3 * OPTIONS.election_ticks)
    assert leader.role == FOLLOWER
    assert LEADER in (group.core(2).role, group.core(3).role)


def test_who_has_the_longest_log_and_is_a_voter_no_more_says_what_is_committed() -> None:
    """Seed 1010 of the simulator: only the leader that was removed knew that the joint
    configuration had ended. One of the others needed its vote to leave it, and did not get it.
    """
    group = Group(3, spare=1)
    leader = group.elect(2)
    leader.propose_configuration(_change((ADD_LEARNER, 4)))
    group.run()
    group.cut = {3}
    change = _change((ADD_VOTER, 4), (REMOVE, 2), transition=JOINT_EXPLICIT)
    leader.propose_configuration(change)
    group.run()
    leader.propose_configuration(ConfigurationChange())
    group.hold = {messages.APPEND_ANSWER}
    group.run()
    group.hold = {messages.APPEND}
    leader.propose([b"longest"])
    for answer in group.held:
        leader.step(answer)
    group.run()
    assert leader.role == FOLLOWER
    assert leader.tracker.own is None
    assert group.core(4).tracker.members.voters_outgoing == (1, 2, 3)
    group.hold, group.cut = set(), {1}
    group.tick(5 * OPTIONS.election_ticks)
    assert group.core(4).role == LEADER
    assert _voters(group[4]) == _voters(group[3]) == (1, 3, 4)
    assert group[4].bodies == []


def test_nobody_campaigns_with_a_committed_change_that_is_not_applied() -> None:
    group = Group(3, spare=1)
    leader = group.elect(1)
    leader.propose_configuration(_change((ADD_VOTER, 4)))
    group.hold = {messages.APPEND}
    group.run()
    core = group.core(2)
    for each in [each for each in group.held if each.to == 2]:
        core.step(each)
    core.step(replace(group.held[-1], to=2, index=3, log_term=1, commit=3, entries=()))
    assert list(core.log.configurations) == [3]
    assert core.log.committed == 3
    assert not core.campaign()
    group[2].turn()
    assert _voters(group[2]) == (1, 2, 3, 4)
    assert core.campaign()


def test_a_change_that_a_snapshot_has_overtaken_is_not_applied() -> None:
    group = Group(3)
    leader = group.elect(1)
    leader.propose_configuration(_change((REMOVE, 3)))
    group.run()
    entry = group[2].applied[-1]
    before = group.core(2).tracker.members
    assert group.core(2).apply_configuration(entry) is before


def test_a_level_group_may_rest_and_wakes_without_an_election() -> None:
    group = Group(3)
    leader = group.elect(1)
    assert leader.is_level()
    leader.propose([b"x"])
    assert not leader.is_level()
    group.run()
    assert leader.is_level()
    assert not group.core(2).is_level()
    # Nobody ticks for long; then all go on where they were.
    for node in (1, 2, 3):
        group.core(node).wake()
    group.tick(2 * OPTIONS.election_ticks)
    assert leader.role == LEADER
    assert leader.term == 1


def test_a_group_with_a_member_that_is_behind_does_not_rest() -> None:
    group = Group(3)
    leader = group.elect(1)
    group.cut = {3}
    leader.propose([b"x"])
    group.run()
    assert not leader.is_level()


def test_the_status_says_what_there_is_to_know() -> None:
    group = Group(3)
    leader = group.elect(1)
    leader.propose([b"x"])
    group.run()
    status = leader.status()
    assert (status.role, status.term, status.leader, status.committed) == (LEADER, 1, 1, 2)
    assert [(each.node, each.match) for each in status.members] == [(1, 2), (2, 2), (3, 2)]
    assert status.membership.voters == (1, 2, 3)
    assert group.core(2).status().members == ()
