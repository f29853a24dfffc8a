"""No space: new messages are refused, settlements go on, and nothing half made stays."""

from __future__ import annotations

import errno

import pytest

from kernel.log.writer import PrepareJob
from tests.kernel.log.harness import commit, new_disk, new_journal, reopen


def test_a_full_disk_refuses_messages_and_goes_on_with_settlements() -> None:
    disk, journal = new_journal(new_disk(capacity=32 * 1024 * 5))
    while (job := journal.maintenance()) is not None:
        job.run()
        journal.end_maintenance(job)
    index = 0
    while journal.can_accept:
        index += 1
        journal.append(0, 1, index, bytes(4000))
        commit(journal)
        job = journal.maintenance(removals=False)
        if job is not None:
            job.run()
            journal.end_maintenance(job)
    assert journal.statistics().ready_segments == 1
    used = disk.used
    for _ in range(20):
        index += 1
        journal.append(0, 1, index, bytes(20))
        assert commit(journal) == [(0, index)]
    assert disk.used == used
    assert len(reopen(disk)[1]) == index

    disk.capacity = 1 << 30
    retry = journal.maintenance(removals=False)
    assert retry is not None
    retry.run()
    journal.end_maintenance(retry)
    assert journal.can_accept


def test_no_half_made_segment_stays_on_a_full_disk() -> None:
    disk, journal = new_journal(new_disk(capacity=40 * 1024))
    job = journal.maintenance(removals=False)
    assert job is not None
    job.run()
    assert isinstance(job, PrepareJob)
    assert job.error is not None
    assert job.error.errno == errno.ENOSPC
    journal.end_maintenance(job)
    assert not journal.can_accept
    assert disk.names("journal") == ["00000001.seg"]


def test_a_batch_without_any_space_left_fails_like_a_sync() -> None:
    _disk, journal = new_journal(new_disk(capacity=40 * 1024))
    for index in range(1, 10):
        journal.append(0, 1, index, bytes(5000))
    batch = journal.begin()
    assert batch is not None
    with pytest.raises(OSError, match="no space"):
        batch.run()


def test_an_io_error_while_preparing_is_not_swallowed() -> None:
    disk, journal = new_journal()
    disk.fail("fdatasync", OSError(errno.EIO, "Input/output error"))
    job = journal.maintenance(removals=False)
    assert job is not None
    with pytest.raises(OSError, match="Input/output"):
        job.run()
