"""A snapshot of another store takes the place of a group's log: at once, and for good."""

from __future__ import annotations

from kernel.log.format.checkpoint import Checkpoint
from kernel.log.format.files import segment_name
from kernel.log.format.record import RecordType, seed_of
from kernel.log.format.segment import HEADER_PAGE_BYTES
from kernel.log.format.segment_reader import SegmentReader
from kernel.log.install import InstallJob
from kernel.log.journal import Journal
from tests.kernel.log.harness import META, OPTIONS, commit, new_journal
from tests.simulator.disk import SimulatedDisk

GROUP = 1
SNAPSHOT = (5, 2, "snap/1-5")
"""Index, term and name."""


def journal_with_another_log() -> tuple[SimulatedDisk, Journal]:
    """Ten entries of a leader that was never followed by a majority."""
    disk, journal = new_journal()
    journal.append_hard_state(GROUP, 2, 3, 0)
    for index in range(1, 11):
        journal.append(GROUP, 1, index, b"void %d" % index)
    commit(journal)
    return disk, journal


def received(journal: Journal) -> InstallJob:
    """Everything of the snapshot is synced but the checkpoint that names it."""
    job = journal.install(GROUP, SNAPSHOT[0])
    assert job is not None
    job.append(2, 3, b"held")
    commit(journal)
    assert job.close(SNAPSHOT[0], SNAPSHOT[1])
    commit(journal)
    assert job.closed
    return job


def checkpointed(journal: Journal, job: InstallJob) -> None:
    index, _term, name = SNAPSHOT
    written = journal.checkpoint({GROUP: (index, name)}, job)
    written.run()
    journal.checkpointed(written)


def recovered(disk: SimulatedDisk) -> tuple[Journal, list[tuple[int, int, bytes]]]:
    """After a power loss: the journal, and (index, term, body) of what stands behind the mark."""
    after = disk.crashed_copy()
    journal, found = Journal.recover(after, OPTIONS, Checkpoint.read(after))
    journal.retain(GROUP, 3, 1)
    entries = [(index, term, body) for _, index, term, body in found.entries]
    journal.finish_recovery()
    return journal, entries


def offset_of(disk: SimulatedDisk, kind: RecordType) -> int:
    """Where the last byte of the first record of a type stands in segment 1."""
    file = disk.open(segment_name(1))
    reader = SegmentReader(file, file.size(), seed_of(META.store))
    at, header = next(each for each in reader.records(HEADER_PAGE_BYTES) if each[1].type == kind)
    file.close()
    return at + header.length - 1


def test_nothing_of_the_old_log_comes_back_once_a_checkpoint_names_the_snapshot() -> None:
    disk, journal = journal_with_another_log()
    checkpointed(journal, received(journal))
    # Not a byte is written after the checkpoint: the node may have answered nevertheless.
    after, entries = recovered(disk)
    assert entries == []
    assert (after.last_index(GROUP), after.last_term(GROUP)) == (5, 2)
    assert after.snapshot_of(GROUP) == SNAPSHOT
    assert after.read(GROUP, 3) == b"held"


def test_what_follows_the_snapshot_survives() -> None:
    disk, journal = journal_with_another_log()
    job = received(journal)
    checkpointed(journal, job)
    journal.installed(job, {3: 1})
    assert journal.last_index(GROUP) == 5
    for index in (6, 7):
        journal.append(GROUP, 2, index, b"new %d" % index)
    commit(journal)
    after, entries = recovered(disk)
    assert entries == [(6, 2, b"new 6"), (7, 2, b"new 7")]
    assert after.read(GROUP, 3) == b"held"


def test_an_entry_of_the_snapshot_that_does_not_read_is_known_to_be_lost() -> None:
    """The log began anew behind it: nothing of that is lost, but of what the snapshot refers to."""
    disk, journal = journal_with_another_log()
    journal.append(GROUP + 1, 1, 1, b"of a group without a snapshot: all from here on is read")
    commit(journal)
    checkpointed(journal, received(journal))
    after = disk.crashed_copy()
    after.flip(segment_name(1), offset_of(after, RecordType.REWRITE))
    _journal, found = Journal.recover(after, OPTIONS, Checkpoint.read(after))
    assert (found.damaged, found.unreadable) == ({}, True)


def test_without_its_checkpoint_the_old_log_stands() -> None:
    disk, journal = journal_with_another_log()
    received(journal)
    after, entries = recovered(disk)
    assert entries == [(index, 1, b"void %d" % index) for index in range(1, 11)]
    assert after.snapshot_of(GROUP) == (0, 0, "")
    assert after.hard_state(GROUP) == (2, 3, 0)


def test_a_log_that_went_on_instead_is_whole_behind_its_own_snapshot() -> None:
    disk, journal = journal_with_another_log()
    received(journal)
    disk = disk.crashed_copy()
    journal, found = Journal.recover(disk, OPTIONS, Checkpoint.read(disk))
    assert len(list(found.entries)) == 10
    journal.finish_recovery()
    for index in range(5, 13):
        journal.append(GROUP, 2, index, b"right %d" % index)
    commit(journal)
    own = journal.checkpoint({GROUP: (8, "snap/1-8")})
    own.run()
    after = disk.crashed_copy()
    journal, found = Journal.recover(after, OPTIONS, Checkpoint.read(after))
    rows = [(index, term, body) for _, index, term, body in found.entries]
    assert rows == [(index, 2, b"right %d" % index) for index in range(9, 13)]
