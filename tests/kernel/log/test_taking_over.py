"""What a journal has already of a snapshot's entries does not come again, and counts for good."""

from __future__ import annotations

import pytest

from kernel.common.feature_levels import REPLICAS
from kernel.log.format.checkpoint import Checkpoint
from kernel.log.format.files import segment_name
from kernel.log.install import GONE, KEPT_MAX, InstallJob
from kernel.log.journal import Journal
from kernel.log.locations import OFFSET_MASK, SEGMENT_SHIFT
from kernel.store.recovery.examination import examine
from tests.kernel.log.harness import OPTIONS, body_of, commit, new_journal
from tests.simulator.disk import SimulatedDisk

GROUP, OTHER = 1, 2
BODIES = {index: body_of([b"%d" % index * 700]) for index in range(1, 200)}
"""What is committed at each index, 700 bytes and more: a few to a page, dozens to a segment."""

HELD, KEPT, NEW = (2, 5), (11, 14, 17), (22, 25)
"""Of the last snapshot's entries: what the state has, what a given up install has left, what is to
come."""

FIRST, LAST = 20, 30
"""What that install's snapshot and the last one have applied."""


def following(index: int = 10) -> tuple[SimulatedDisk, Journal]:
    """A log that has applied so much, and whose state refers to HELD."""
    disk, journal = new_journal()
    journal.append_hard_state(GROUP, 1, 0, 0)
    for each in range(1, index + 1):
        journal.append(GROUP, 1, each, BODIES[each])
    commit(journal)
    for each in HELD:
        journal.retain(GROUP, each, 3)
        journal.release(GROUP, each, 2)
    checkpoint(journal, index)
    return disk, journal


def checkpoint(journal: Journal, index: int, job: InstallJob | None = None) -> None:
    written = journal.checkpoint({GROUP: (index, f"snap/{index}")}, job)
    written.run()
    journal.checkpointed(written)


def given_up(journal: Journal, *indexes: int, snapshot: int = FIRST) -> None:
    """An install that has got so far."""
    job = begun(journal, snapshot)
    for index in indexes:
        assert not job.take(index)
        job.append(0, index, BODIES[index])
    commit(journal)
    journal.give_up_install(job)


def begun(journal: Journal, snapshot: int = LAST) -> InstallJob:
    job = journal.install(GROUP, snapshot)
    assert job is not None
    while (kept := job.unverified) is not None:
        check = journal.check_kept(GROUP, kept)
        while not check.done:
            check.run()
        job.checked(kept, is_whole=check.is_whole)
    return job


def came(journal: Journal, job: InstallJob, *indexes: int) -> list[int]:
    """What had to come of them."""
    lacking = [index for index in indexes if not job.take(index)]
    for index in lacking:
        job.append(0, index, BODIES[index])
    if lacking:
        commit(journal)
    return lacking


def installed(journal: Journal, job: InstallJob, *indexes: int, snapshot: int = LAST) -> None:
    assert job.is_sound
    assert job.close(snapshot, 2)
    commit(journal)
    assert job.closed
    checkpoint(journal, snapshot, job)
    journal.installed(job, dict.fromkeys(indexes, 1))


def after_a_crash(
    disk: SimulatedDisk, *held: int, seed: int | None = None, damaged: int = 0
) -> Journal:
    return restarted(disk.crashed_copy(seed), *held, damaged=damaged)


def restarted(disk: SimulatedDisk, *held: int, damaged: int = 0) -> Journal:
    """The process was killed, and starts: what it has written is there, synced or not."""
    journal, found = Journal.recover(disk, OPTIONS, Checkpoint.read(disk))
    assert len(found.damaged) == damaged
    for _ in found.entries:
        pass
    for index in held:
        journal.retain(GROUP, index, 1)
    journal.finish_recovery()
    return journal


def is_whole(journal: Journal, *indexes: int) -> None:
    journal.bodies.discard_group(GROUP)
    for index in indexes:
        assert journal.read(GROUP, index) == BODIES[index]


def maintained(journal: Journal) -> None:
    while (job := journal.maintenance()) is not None:
        job.run()
        journal.end_maintenance(job)


def filled(journal: Journal) -> None:
    """Some segments more, of another group, with nothing live; and a checkpoint behind them."""
    for _ in range(120):
        journal.append(OTHER, 1, journal.last_index(OTHER) + 1, bytes(1_000))
        commit(journal)
        maintained(journal)
    names = {OTHER: (journal.last_index(OTHER), "snap/other")}
    job = journal.checkpoint(names)
    job.run()
    journal.checkpointed(job)
    maintained(journal)


def segments(disk: SimulatedDisk) -> list[str]:
    return [f"journal/{name}" for name in disk.names("journal")]


def segment_of(journal: Journal, job: InstallJob, index: int) -> tuple[int, int]:
    """(segment, offset) of an entry that was kept."""
    (kept,) = job.kept
    position = kept.rows.positions[kept.rows.find(index)]
    return position >> SEGMENT_SHIFT, (position & OFFSET_MASK) << 3


def test_only_what_neither_the_state_holds_nor_an_install_has_left_comes() -> None:
    disk, journal = following()
    given_up(journal, *KEPT)
    job = begun(journal)
    assert came(journal, job, *HELD, *KEPT, *NEW) == [*NEW]
    assert job.taken_entries == len(HELD) + len(KEPT)
    assert job.taken_bytes > sum(len(BODIES[index]) for index in (*HELD, *KEPT))
    wanted = (*HELD, *KEPT, *NEW)
    installed(journal, job, *wanted)
    is_whole(journal, *wanted)
    assert not journal.kept
    is_whole(after_a_crash(disk, *wanted), *wanted)


def test_what_has_lost_most_of_its_references_still_counts_as_little() -> None:
    _disk, journal = following()
    before = sum(each.live_bytes for each in journal.segments())
    job = begun(journal)
    came(journal, job, *HELD)
    installed(journal, job, *HELD)
    assert sum(each.live_bytes for each in journal.segments()) == before
    assert before < sum(len(BODIES[index]) for index in HELD) / 2


@pytest.mark.parametrize("left", [1, 2, 5])
def test_what_several_installs_have_left_is_taken_together(left: int) -> None:
    _disk, journal = following()
    for number in range(left):
        given_up(journal, 11 + number)
    job = begun(journal)
    assert came(journal, job, *range(11, 11 + left), 22) == [22]
    journal.give_up_install(job)
    assert came(journal, begun(journal), *range(11, 11 + left), 22, 23) == [23]


def of_another_group(journal: Journal, index: int) -> None:
    """An install of another group, given up."""
    job = journal.install(OTHER, LAST)
    assert job is not None
    job.append(0, index, BODIES[index])
    commit(journal)
    journal.give_up_install(job)


def test_installs_with_nothing_rewritten_between_them_leave_one_thing_however_many() -> None:
    disk, journal = following()
    indexes = range(11, 15 + 2 * KEPT_MAX)
    for index in indexes:
        given_up(journal, index, snapshot=200)
    filled(journal)
    for each in (journal, after_a_crash(disk, *HELD)):
        job = begun(each, 200)
        assert len(job.kept) == 1
        assert all(job.take(index) for index in indexes)


def test_an_index_that_comes_late_is_kept_apart() -> None:
    """Indexes are looked for in rising order."""
    disk, journal = following()
    given_up(journal, 14)
    given_up(journal, 11)
    given_up(journal, 17)
    job = begun(journal)
    assert [list(each.rows.indexes) for each in job.kept] == [[14], [11, 17]]
    assert came(journal, job, 11, 14, 17, 22) == [22]
    installed(journal, job, 11, 14, 17, 22)
    is_whole(after_a_crash(disk, 11, 14, 17, 22), 11, 14, 17, 22)


def test_the_oldest_of_too_many_goes() -> None:
    _disk, journal = following()
    for index in range(11, 12 + KEPT_MAX):
        given_up(journal, index, snapshot=200)
        of_another_group(journal, 11)
    job = begun(journal, 200)
    assert len(job.kept) == KEPT_MAX
    assert not job.may_begin_anew
    assert came(journal, job, *range(11, 12 + KEPT_MAX)) == [11]


def test_after_a_restart_each_group_finds_its_own_though_they_stand_between_one_another() -> None:
    disk, journal = following()
    given_up(journal, 11, 14)
    of_another_group(journal, 12)
    given_up(journal, 17)
    journal.append_hard_state(GROUP, 1, 0, 0)  # a later batch: all before it was synced
    commit(journal)
    journal = restarted(disk, *HELD)
    assert set(journal.kept) == {GROUP, OTHER}
    job = begun(journal)
    assert [list(each.rows.indexes) for each in job.kept] == [[11, 14], [17]]
    wanted = (*HELD, 11, 14, 17, 22)
    assert came(journal, job, *wanted) == [22]
    installed(journal, job, *wanted)
    journal = restarted(disk, *wanted)
    is_whole(journal, *wanted)
    assert not journal.has(OTHER, 12), "nobody has named it"
    other = journal.install(OTHER, LAST)
    assert other is not None
    assert [list(each.rows.indexes) for each in other.kept] == [[12]]
    is_whole(after_a_crash(disk, *wanted), *wanted)


def test_one_that_is_damaged_costs_itself_alone_where_a_start_has_not_read_it() -> None:
    disk, journal = following()
    given_up(journal, 11, 14)
    of_another_group(journal, 12)
    given_up(journal, 17)
    filled(journal)
    job = journal.install(GROUP, LAST)
    assert job is not None
    position = job.kept[0].rows.positions[1]
    disk.flip(segment_name(position >> SEGMENT_SHIFT), ((position & OFFSET_MASK) << 3) + 300)
    journal = restarted(disk, *HELD)
    job = begun(journal)
    wanted = (*HELD, 11, 14, 17)
    assert came(journal, job, *wanted) == [11, 14]
    installed(journal, job, *wanted)
    is_whole(restarted(disk, *wanted), *wanted)


def test_the_closing_record_of_one_that_was_given_up_does_not_close_the_next() -> None:
    """It may still be queued then: the next would count before it is on disk."""
    _disk, journal = following()
    job = begun(journal, FIRST)
    came(journal, job, *KEPT)
    assert job.close(FIRST, 2)
    journal.give_up_install(job)
    assert journal.install(GROUP, LAST) is None
    commit(journal)
    job = begun(journal)
    assert came(journal, job, *KEPT, *NEW) == [*NEW]
    assert not job.closed


def test_an_install_hears_that_a_rewrite_waits() -> None:
    _disk, journal = following()
    job = begun(journal)
    assert not job.is_waited_for
    assert journal.rewrite_candidate(1.0) is None
    assert job.is_waited_for


def test_what_a_log_has_and_its_state_has_not_applied_is_not_taken() -> None:
    """Another leader may have other entries there: those were never committed."""
    disk, journal = following()
    for index in range(11, 15):
        journal.append(GROUP, 2, index, b"of a leader that nobody followed")
    commit(journal)
    job = begun(journal)
    assert came(journal, job, 5, 11, 12) == [11, 12]
    installed(journal, job, 5, 11, 12)
    is_whole(journal, 5, 11, 12)
    is_whole(after_a_crash(disk, 5, 11, 12), 5, 11, 12)


def test_nothing_is_kept_once_the_log_goes_on_by_itself() -> None:
    """The entry that it got may be another one of that index, and would count: it is the last."""
    disk, journal = following()
    given_up(journal, *KEPT)
    journal.append(GROUP, 2, 11, b"of a leader that nobody followed")
    commit(journal)
    again = after_a_crash(disk, *HELD)
    for each in (journal, again):
        assert came(each, begun(each), *KEPT) == [*KEPT]


def test_what_is_behind_the_new_snapshot_is_not_kept() -> None:
    """Recovery would place an entry that the log does not have yet."""
    disk, journal = following()
    given_up(journal, *KEPT, 19)
    again = after_a_crash(disk, *HELD)
    for each in (journal, again):
        assert came(each, begun(each, snapshot=18), *KEPT) == [*KEPT]


def test_an_empty_entry_is_asked_for_again() -> None:
    """The sender had it no more; the next one may."""
    _disk, journal = following()
    job = begun(journal, FIRST)
    job.append(0, 11, GONE)
    commit(journal)
    journal.give_up_install(job)
    job = begun(journal)
    assert came(journal, job, 11) == [11]
    installed(journal, job, 11)
    is_whole(journal, 11)


def test_a_void_group_claims_nothing() -> None:
    disk, journal = following()
    given_up(journal, *KEPT)
    journal.mark_damaged(GROUP)
    assert not journal.kept
    checkpoint(journal, 10)
    again = after_a_crash(disk, damaged=1)
    assert not again.kept
    again.void(GROUP)
    assert came(again, begun(again), *HELD, *KEPT) == [*HELD, *KEPT]


def test_a_group_that_was_left_claims_nothing() -> None:
    _disk, journal = following()
    given_up(journal, *KEPT)
    job = journal.checkpoint({}, leaving=GROUP)
    job.run()
    journal.checkpointed(job)
    journal.leave(GROUP)
    assert came(journal, begun(journal), *HELD, *KEPT) == [*HELD, *KEPT]


def test_a_group_that_was_left_is_no_damage_to_who_examines_the_directory() -> None:
    disk, journal = following()
    journal.feature_level = REPLICAS
    job = journal.checkpoint({}, leaving=GROUP)
    job.run()
    journal.checkpointed(job)
    journal.leave(GROUP)
    assert not examine(disk).findings
    journal.append(OTHER, 1, 1, BODIES[1])
    commit(journal)
    segment, offset, length = journal._locations.locate(OTHER, 1)
    disk.flip(segment_name(segment.number), offset + length // 2)
    (found,) = examine(disk).findings
    assert f"group {OTHER}" in found.what
    assert f"group {GROUP}" not in found.what


def test_who_has_come_back_finds_nothing_from_before_it_left() -> None:
    disk, journal = following()
    given_up(journal, *KEPT)
    left = journal.checkpoint({}, leaving=GROUP)
    left.run()
    journal.checkpointed(left)
    journal.leave(GROUP)
    job = begun(journal)
    wanted = (*HELD, *KEPT)
    assert came(journal, job, *wanted) == [*wanted]
    installed(journal, job, *wanted)
    journal.healed(GROUP)
    checkpoint(journal, LAST)
    journal = restarted(disk, *wanted)
    assert not journal.kept
    is_whole(journal, *wanted)


@pytest.mark.parametrize("damage", ["flip", "spoil"])
def test_what_a_crash_has_ended_is_taken_if_all_of_it_is_whole(damage: str) -> None:
    disk, journal = following()
    given_up(journal, *KEPT)
    filled(journal)
    job = begun(after_a_crash(disk, *HELD))
    assert [job.take(index) for index in (*KEPT, *NEW)] == [True] * len(KEPT) + [False] * len(NEW)
    number, offset = segment_of(journal, job, KEPT[1])
    after = disk.crashed_copy()
    if damage == "flip":
        after.flip(segment_name(number), offset + 300)
    else:
        after.spoil(segment_name(number), offset + 300)
    again = after_a_crash(after, *HELD)
    job = begun(again)
    assert came(again, job, *HELD, *KEPT) == [*KEPT], "none of it"
    installed(again, job, *HELD, *KEPT)
    is_whole(again, *HELD, *KEPT)


def test_what_is_kept_keeps_its_segments_until_it_is_forgotten() -> None:
    disk, journal = following()
    filled(journal)
    given_up(journal, *KEPT)
    filled(journal)
    job = begun(journal)
    number, _offset = segment_of(journal, job, KEPT[0])
    filled(journal)
    journal.give_up_install(job)
    filled(journal)
    assert segment_name(number) in segments(disk)
    again = after_a_crash(disk, *HELD)
    assert came(again, begun(again), *KEPT) == []
    journal.forget_kept(GROUP)
    filled(journal)
    assert segment_name(number) not in segments(disk)
    assert came(journal, begun(journal), *KEPT) == [*KEPT]


def test_a_full_disk_gets_back_what_is_kept() -> None:
    disk, journal = following()
    given_up(journal, *KEPT)
    disk.capacity = disk.used
    while journal.can_accept:
        journal.append(OTHER, 1, journal.last_index(OTHER) + 1, bytes(1_000))
        commit(journal)
        job = journal.maintenance()
        if job is not None:
            job.run()
            journal.end_maintenance(job)
    assert not journal.kept


@pytest.mark.parametrize("torn", [False, True], ids=["clean", "torn"])
def test_at_each_boundary_of_an_install_the_old_state_is_there_or_the_new(torn: bool) -> None:
    """One that is given up, and one that takes over what that has left and what the state holds."""
    disk, journal = following()
    seen: set[int] = set()
    wanted = (*HELD, *KEPT, *NEW)

    def recovered(boundary: int, _what: str) -> None:
        seed = boundary if torn else None
        named = Checkpoint.read(disk.crashed_copy(seed))
        assert named is not None
        mark = named.groups[GROUP].index
        seen.add(mark)
        held = HELD if mark < LAST else wanted
        again = after_a_crash(disk, *held, seed=seed)
        assert again.last_index(GROUP) == mark
        is_whole(again, *held)
        if mark < LAST:  # and it can be begun again
            job = begun(again)
            came(again, job, *wanted)
            installed(again, job, *wanted)
            is_whole(again, *wanted)

    disk.on_boundary = recovered
    given_up(journal, *KEPT)
    maintained(journal)
    job = begun(journal)
    assert came(journal, job, *wanted) == [*NEW]
    installed(journal, job, *wanted)
    maintained(journal)
    disk.on_boundary = None
    assert seen == {10, LAST}
    is_whole(journal, *wanted)
