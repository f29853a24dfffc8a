"""Batches that are written beside the loop, and those that a thread has to write."""

from __future__ import annotations

import dataclasses
import errno

import pytest

from kernel.log.errors import JournalError
from kernel.log.journal import Journal
from kernel.log.writer import BESIDE_BYTES_MAX, WriteBatch
from kernel.store.drivers.worker import Done, Job
from tests.kernel.log.harness import OPTIONS, new_disk, new_journal, reopen
from tests.simulator.disk import SimulatedDisk


class Beside:
    """What writes beside a loop: when it is told to."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Job, Done]] = []

    def submit(self, job: Job, done: Done) -> None:
        self.jobs.append((job, done))

    def stop(self) -> None:
        """Nothing to end."""

    def work(self) -> None:
        """Do what has been begun."""
        jobs, self.jobs = self.jobs, []
        for job, done in jobs:
            try:
                job()
            except OSError as error:
                done(error)
            else:
                done(None)


class TestBesideTheLoop:
    def begun(self, *sizes: int, disk: SimulatedDisk | None = None) -> tuple[Journal, WriteBatch]:
        """A journal with a batch of entries of these sizes."""
        disk = disk or new_disk()
        disk.beside = Beside()
        _disk, journal = new_journal(disk, dataclasses.replace(OPTIONS, segment_bytes=4 << 20))
        for index, size in enumerate(sizes, start=1):
            journal.append(0, 1, index, bytes(size))
        batch = journal.begin()
        assert batch is not None
        return journal, batch

    def test_a_batch_is_stable_once_its_write_has_ended(self) -> None:
        disk, heard = new_disk(), list[BaseException | None]()
        journal, batch = self.begun(100, 200, disk=disk)
        assert batch.start(heard.append)
        assert not heard
        assert not batch.done
        with pytest.raises(JournalError, match="no batch"):
            journal.end(batch)
        assert isinstance(disk.beside, Beside)
        disk.beside.work()
        assert heard == [None]
        assert journal.end(batch) == [(0, 2)]
        assert reopen(disk.crashed_copy())[1] == [bytes(100), bytes(200)]

    def test_a_failed_write_ends_no_batch(self) -> None:
        disk, heard = new_disk(), list[BaseException | None]()
        journal, batch = self.begun(100, disk=disk)
        disk.fail("fdatasync", OSError(errno.EIO, "Input/output error"))
        assert batch.start(heard.append)
        assert isinstance(disk.beside, Beside)
        disk.beside.work()
        assert [type(each) for each in heard] == [OSError]
        with pytest.raises(JournalError, match="no batch"):
            journal.end(batch)

    def test_a_disk_that_cannot_takes_a_thread(self) -> None:
        disk, heard = new_disk(), list[BaseException | None]()
        journal, batch = self.begun(100, disk=disk)
        disk.beside = None
        assert not batch.start(heard.append)
        batch.run()
        assert journal.end(batch) == [(0, 1)]
        assert not heard

    def test_a_batch_too_large_to_copy_takes_a_thread(self) -> None:
        for size, beside in ((BESIDE_BYTES_MAX - 200, True), (BESIDE_BYTES_MAX, False)):
            _journal, batch = self.begun(size)
            assert batch.start(lambda _error: None) is beside

    def test_a_batch_over_two_segments_takes_a_thread(self) -> None:
        disk, journal = new_journal()
        disk.beside = Beside()
        for index in range(1, 4):
            journal.append(0, 1, index, bytes(15_000))
        batch = journal.begin()
        assert batch is not None
        assert len(batch.parts) > 1
        assert not batch.start(lambda _error: None)
