"""Disk and messages: what may leave before a sync, what counts after one, and A-B-A."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernel.raft import messages
from kernel.raft.core import RaftCore
from kernel.raft.errors import LogDamaged
from kernel.raft.messages import (
    EMPTY,
    NORMAL,
    Entry,
    HardState,
    Membership,
    RaftMessage,
    Snapshot,
)

from .group import OPTIONS, Group
from .memory import MemoryStorage


def _append(
    sender: int, term: int, prior: tuple[int, int], *terms: int, commit: int = 0
) -> RaftMessage:
    """An append to node 1 of entries with these terms behind `prior` (index, term)."""
    index, prior_term = prior
    entries = [
        Entry(each, index + place, NORMAL, b"%d" % each) for place, each in enumerate(terms, 1)
    ]
    return RaftMessage(messages.APPEND, sender, 1, term, prior_term, index, commit, entries)


def test_a_leaders_appends_leave_before_its_own_sync() -> None:
    group = Group(3)
    leader = group.elect(1)
    leader.propose([b"x"])
    ready = leader.ready()
    assert ready.must_sync
    assert [each.kind for each in ready.messages_now] == [messages.APPEND] * 2
    assert not ready.messages_after_sync


def test_a_followers_answer_waits_for_its_sync() -> None:
    core = Group(3).core(1)
    core.step(_append(2, 1, (0, 0), 1))
    ready = core.ready()
    assert ready.must_sync
    assert not ready.messages_now
    assert [each.index for each in ready.messages_after_sync] == [1]


def test_an_answer_to_a_repeated_append_waits_for_the_write_that_is_under_way() -> None:
    core = Group(3).core(1)
    core.step(_append(2, 1, (0, 0), 1))
    first = core.ready()
    core.step(_append(2, 1, (0, 0), 1))
    second = core.ready()
    assert not second.must_sync
    assert second.number > first.number
    assert [each.index for each in second.messages_after_sync] == [1]


def test_an_entry_commits_without_the_leaders_disk_but_is_applied_only_from_it() -> None:
    group = Group(3)
    leader = group.elect(1)
    group[1].syncing = False
    leader.propose([b"x"])
    group.run()
    assert leader.log.committed == 2
    assert group[1].bodies == []
    assert group[2].bodies == [b"x"]
    group[1].sync()
    group.run()
    assert group[1].bodies == [b"x"]


def test_one_follower_and_no_leaders_disk_commit_nothing_of_four() -> None:
    group = Group(4)
    leader = group.elect(1)
    group[1].syncing = False
    group.cut = {4}
    leader.propose([b"x"])
    group.run()
    assert leader.log.committed == 1
    group[1].sync()
    group.run()
    assert leader.log.committed == 2


def test_an_overwritten_entry_that_came_back_counts_with_its_last_write() -> None:
    core = Group(3).core(1)
    core.step(_append(2, 1, (0, 0), 1))
    first = core.ready()
    core.step(_append(3, 2, (0, 0), 2))
    second = core.ready()
    core.step(_append(2, 3, (0, 0), 1))
    third = core.ready()
    assert [each.entries[0].term for each in (first, second, third)] == [1, 2, 1]
    core.stable(first.number)
    assert core.log.stable_index == 0
    core.stable(second.number)
    assert core.log.stable_index == 0
    core.stable(third.number)
    assert core.log.stable_index == 1


def test_what_a_truncation_left_of_a_write_still_counts() -> None:
    core = Group(3).core(1)
    core.step(_append(2, 1, (0, 0), 1, 1, 1))
    first = core.ready()
    core.step(_append(3, 2, (2, 1), 2))
    core.stable(first.number)
    assert core.log.stable_index == 2
    core.stable(core.ready().number)
    assert core.log.stable_index == 3


def test_an_answer_of_the_disk_covers_all_writes_before_it() -> None:
    core = Group(3).core(1)
    numbers = []
    for index in range(3):
        core.step(_append(2, 1, (index, 1 if index else 0), 1))
        numbers.append(core.ready().number)
    core.stable(numbers[-1])
    assert core.log.stable_index == 3
    assert not core.log.writes


def test_an_old_append_never_shortens_the_log() -> None:
    core = Group(3).core(1)
    core.step(_append(2, 1, (0, 0), 1, 1, 1))
    core.step(_append(2, 1, (0, 0), 1))
    core.step(_append(2, 1, (1, 1)))
    assert core.log.last_index == 3


def test_an_append_from_before_what_is_committed_changes_nothing() -> None:
    core = Group(3).core(1)
    core.step(_append(2, 1, (0, 0), 1, 1, commit=2))
    core.ready()
    core.step(_append(3, 2, (1, 1), 2))
    assert (core.log.last_index, core.log.last_term) == (2, 1)
    assert [each.index for each in core.ready().messages_after_sync] == [2]


def test_nothing_commits_behind_what_the_leader_is_known_to_share() -> None:
    core = Group(3).core(1)
    core.step(_append(2, 1, (0, 0), 1, 1, 1))
    core.step(_append(3, 2, (1, 1), commit=3))
    assert core.log.last_index == 3
    assert core.log.committed == 1


def test_a_commit_index_beyond_a_log_that_has_forgotten_stops_the_replica() -> None:
    core = Group(3).core(1)
    with pytest.raises(LogDamaged):
        core.step(RaftMessage(messages.HEARTBEAT, 2, 1, 1, commit=5))


def test_entries_with_a_gap_stop_the_replica() -> None:
    core = Group(3).core(1)
    message = _append(2, 1, (0, 0), 1, 1)
    with pytest.raises(LogDamaged):
        core.step(replace(message, entries=message.entries[1:]))


@pytest.mark.parametrize("applied", [3, 8])
def test_a_state_machine_that_does_not_fit_the_log_is_refused(applied: int) -> None:
    storage = MemoryStorage(Snapshot(4, 1, Membership((1,))))
    storage.append([Entry(1, 5, NORMAL, b"x")])
    with pytest.raises(LogDamaged):
        RaftCore(OPTIONS, storage, HardState(1, 0, 5), Membership((1,)), applied, int)


def test_a_hard_state_that_outlived_its_entries_commits_what_there_is() -> None:
    storage = MemoryStorage()
    storage.append([Entry(1, 1, EMPTY, b"")])
    core = RaftCore(OPTIONS, storage, HardState(1, 0, 3), Membership((1, 2, 3)), 0, lambda _: 0)
    assert core.log.committed == 1


def test_nobody_waits_for_a_new_commit_index_to_be_written() -> None:
    group = Group(1)
    core = group.elect(1)
    core.propose([b"x"])
    core.stable(core.ready().number)
    ready = core.ready()
    assert [each.body for each in ready.committed] == [b"x"]
    assert ready.hard_state is not None
    assert not ready.must_sync
    assert not ready.number


def test_entries_of_an_earlier_term_commit_only_under_one_of_this_term() -> None:
    group = Group(3)
    group[2].storage.append([Entry(1, 1, EMPTY, b""), Entry(1, 2, NORMAL, b"old")])
    group[2].hard_state = HardState(1, 1, 1)
    group[2].restart()
    group.hold = {messages.APPEND}
    leader = group.elect(2)
    assert leader.log.last_index == 3
    assert leader.tracker.progress[2].match == 3
    leader.step(RaftMessage(messages.APPEND_ANSWER, 3, 2, leader.term, index=2))
    assert leader.tracker.committed() == 2
    assert leader.log.committed == 1
    leader.step(RaftMessage(messages.APPEND_ANSWER, 3, 2, leader.term, index=3))
    assert leader.log.committed == 3
    group.run()
    assert group[2].bodies == [b"old"]


def test_a_restart_applies_what_was_committed_behind_the_snapshot() -> None:
    group = Group(1)
    core = group.elect(1)
    core.propose([b"a", b"b"])
    group.run()
    group[1].snapshot()
    core.propose([b"c"])
    group.run()
    group[1].restart()
    group[1].turn()
    group.elect(1)
    assert group[1].bodies == [b"c"]
    assert group[1].applied[-1].kind == EMPTY
