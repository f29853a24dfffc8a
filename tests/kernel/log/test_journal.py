"""The journal as its owner uses it: batches, reading, references, space."""

from __future__ import annotations

import dataclasses
import errno
import threading

import pytest

from kernel.log.errors import JournalError
from kernel.log.format.checkpoint import Checkpoint
from kernel.log.format.record import BODY_BYTES_MAX
from kernel.log.journal import Journal
from tests.kernel.log.harness import (
    OPTIONS,
    History,
    Store,
    body_of,
    commit,
    new_disk,
    new_journal,
    reopen,
    run_workload,
)
from tests.simulator.disk import SimulatedDisk


class TestBatches:
    def test_one_batch_is_one_sync_whatever_the_groups(self) -> None:
        disk, journal = new_journal()
        before = disk.syncs
        for group in range(5):
            journal.append(group, 1, 1, b"entry of %d" % group)
            journal.append_hard_state(group, 1, 1, 0)
        assert journal.pending_records == 10
        assert commit(journal) == [(group, 1) for group in range(5)]
        assert disk.syncs == before + 1
        assert journal.pending_records == journal.statistics().pending_bytes == 0
        assert journal.statistics().syncs == 1

    def test_nothing_queued_is_no_batch(self) -> None:
        _disk, journal = new_journal()
        assert journal.begin() is None

    def test_one_batch_is_in_flight_at_most(self) -> None:
        _disk, journal = new_journal()
        journal.append(0, 1, 1, b"first")
        batch = journal.begin()
        assert batch is not None
        journal.append(0, 1, 2, b"second")
        assert journal.begin() is None
        batch.run()
        assert journal.end(batch) == [(0, 1)]
        assert commit(journal) == [(0, 2)]

    def test_a_batch_that_was_not_written_is_not_stable(self) -> None:
        disk, journal = new_journal()
        journal.append(0, 1, 1, b"first")
        batch = journal.begin()
        assert batch is not None
        with pytest.raises(JournalError, match="no batch"):
            journal.end(batch)
        disk.fail("fdatasync", OSError(errno.EIO, "Input/output error"))
        with pytest.raises(OSError, match="Input/output"):
            batch.run()
        with pytest.raises(JournalError, match="no batch"):
            journal.end(batch)
        assert journal.synced_sequence == 0

    def test_a_held_sync_holds_the_batch(self) -> None:
        disk, journal = new_journal()
        held, entered = threading.Event(), threading.Event()

        def gate() -> None:
            entered.set()
            held.wait(10)

        disk.sync_gate = gate
        journal.append(0, 1, 1, b"first")
        batch = journal.begin()
        assert batch is not None
        thread = threading.Thread(target=batch.run)
        thread.start()
        assert entered.wait(10)
        assert not batch.done
        assert journal.entry(0, 1) == b"first"
        assert disk.crashed_copy().content("journal/00000001.seg")[4096:4100] == bytes(4)
        held.set()
        thread.join()
        assert journal.end(batch) == [(0, 1)]

    def test_short_writes_are_continued(self) -> None:
        disk, journal = new_journal()
        disk.short_write_bytes = 7
        bodies = [bytes([n]) * 100 for n in range(5)]
        for index, body in enumerate(bodies, start=1):
            journal.append(0, 1, index, body)
        commit(journal)
        assert reopen(disk)[1] == bodies

    def test_a_gap_is_refused(self) -> None:
        _disk, journal = new_journal()
        journal.append(0, 1, 1, b"one")
        with pytest.raises(JournalError, match="no place for 3"):
            journal.append(0, 1, 3, b"three")

    def test_an_oversized_entry_is_refused(self) -> None:
        _disk, journal = new_journal()

        class Huge(bytes):
            def __len__(self) -> int:
                return BODY_BYTES_MAX + 1

        with pytest.raises(JournalError, match="at most"):
            journal.append(0, 1, 1, Huge())
        assert journal.last_index(0) == 0

    def test_too_many_groups_are_refused(self) -> None:
        _disk, journal = new_journal()
        for group in range(240):
            journal.append(group, 1, 1, b"")
        with pytest.raises(JournalError, match="at most 240"):
            journal.append(240, 1, 1, b"")
        assert len(commit(journal)) == 240


class TestSegments:
    def test_records_roll_over_to_the_next_segment(self) -> None:
        disk, journal = new_journal()
        bodies = [bytes([n]) * 5000 for n in range(30)]
        for index, body in enumerate(bodies, start=1):
            journal.append(0, 1, index, body)
            commit(journal)
        assert len(journal.segments()) > 5
        assert [journal.read(0, index) for index in range(1, 31)] == bodies
        assert reopen(disk)[1] == bodies

    def test_a_batch_that_rolls_over_syncs_both_files(self) -> None:
        disk, journal = new_journal()
        for index in range(1, 11):
            journal.append(0, 1, index, bytes([index]) * 5000)
        before = disk.syncs
        commit(journal)
        segments = len(journal.segments())
        assert segments == 3
        # Two of them it had to allocate itself: header and directory are synced first.
        assert disk.syncs - before == segments + 2 * (segments - 1)
        assert len(reopen(disk)[1]) == 10

    def test_prepared_segments_cost_the_batch_nothing(self) -> None:
        disk, journal = new_journal()
        while (job := journal.maintenance()) is not None:
            job.run()
            journal.end_maintenance(job)
        assert journal.statistics().ready_segments == 2
        for index in range(1, 6):
            journal.append(0, 1, index, bytes([index]) * 5000)
        before = disk.syncs
        commit(journal)
        assert len(journal.segments()) == 2
        assert disk.syncs - before == 2

    def test_a_record_larger_than_a_segment_gets_its_own(self) -> None:
        disk, journal = new_journal()
        while (job := journal.maintenance(removals=False)) is not None:
            job.run()
            journal.end_maintenance(job)
        bodies = [b"a" * 100, b"b" * 200_000, b"c" * 100]
        for index, body in enumerate(bodies, start=1):
            journal.append(0, 1, index, body)
        commit(journal)
        journal.append(0, 1, 4, b"d" * 100_000)
        commit(journal)
        again, read = reopen(disk)
        assert read == [*bodies, b"d" * 100_000]
        assert again.read(0, 2) == bodies[1]
        while (maintenance := journal.maintenance()) is not None:
            maintenance.run()
            journal.end_maintenance(maintenance)
        numbers = {int(name[:8]) for name in disk.names("journal")}
        ready = journal.statistics().ready_segments
        assert len(numbers) == len(journal.segments()) + ready

    def test_a_preparation_overtaken_by_the_writer_is_dropped(self) -> None:
        disk, journal = new_journal()
        job = journal.maintenance(removals=False)
        assert job is not None
        for index in range(1, 6):
            journal.append(0, 1, index, bytes([index]) * 5000)
        commit(journal)  # had to allocate one itself, with a higher number
        job.run()
        journal.end_maintenance(job)
        assert journal.statistics().ready_segments == 0
        while (other := journal.maintenance(segments=False)) is not None:
            other.run()
            journal.end_maintenance(other)
        assert len([name for name in disk.names("journal") if name.endswith(".seg")]) == 2
        assert len(reopen(disk)[1]) == 5

    def test_an_unfinished_preparation_is_forgotten_by_recovery(self) -> None:
        disk, journal = new_journal()
        journal.append(0, 1, 1, b"one")
        commit(journal)
        copies: list[SimulatedDisk] = []
        disk.on_boundary = lambda n, _what: copies.append(disk.crashed_copy(n))
        job = journal.maintenance(removals=False)
        assert job is not None
        job.run()
        disk.on_boundary = None
        assert len(copies) >= 6
        for copy in copies:
            again, bodies = reopen(copy)
            assert bodies == [b"one"]
            assert len(again.segments()) == 2


class TestReading:
    def test_a_queued_and_a_flying_entry_are_in_memory(self) -> None:
        _disk, journal = new_journal()
        journal.append(0, 1, 1, b"one")
        assert journal.entry(0, 1) == b"one"
        batch = journal.begin()
        assert journal.entry(0, 1) == b"one"
        assert batch is not None
        batch.run()
        journal.end(batch)
        assert journal.entry(0, 1) == b"one"
        assert journal.entry(0, 2) is None

    def test_the_tail_cache_keeps_its_limit(self) -> None:
        _disk, journal = new_journal()
        for index in range(1, 101):
            journal.append(0, 1, index, bytes([index]) * 1000)
            commit(journal)
        assert journal.statistics().cache_bytes <= OPTIONS.cache_bytes
        assert journal.entry(0, 100) is not None
        assert journal.entry(0, 1) is None
        assert journal.read(0, 1) == bytes([1]) * 1000

    def test_a_cold_read_brings_what_follows(self) -> None:
        disk, journal = new_journal()
        for index in range(1, 61):
            journal.append(0, 1, index, bytes([index]) * 1000)
            commit(journal)
            journal.retain(0, index, 1)
        journal.release(0, 5, 1)
        assert journal.entry(0, 3) is None
        job = journal.read_ahead(0, 3)
        job.run()
        read = journal.end_read(job)
        assert read > 5
        assert journal.entry(0, 3) == bytes([3]) * 1000
        assert journal.entry(0, 4) == bytes([4]) * 1000
        assert journal.entry(0, 5) is None
        statistics = journal.statistics()
        assert (statistics.cold_hits, statistics.cache_misses) == (2, 2)
        assert statistics.cold_bytes <= OPTIONS.cold_bytes
        assert disk.open_files == 2  # the open segment and the mark

    def test_the_entry_asked_for_stays_however_large(self) -> None:
        _disk, journal = new_journal()
        journal.append(0, 1, 1, b"x" * 100_000)
        commit(journal)
        journal.append(0, 1, 2, b"y" * 18_000)
        commit(journal)
        assert journal.entry(0, 1) is None
        job = journal.read_ahead(0, 1)
        job.run()
        journal.end_read(job)
        assert journal.entry(0, 1) == b"x" * 100_000

    def test_a_read_never_sees_what_is_not_synced(self) -> None:
        _disk, journal = new_journal(
            options=dataclasses.replace(OPTIONS, cache_bytes=0, segment_bytes=64 * 1024)
        )
        journal.append(0, 1, 1, b"one" * 100)
        journal.append(0, 1, 2, b"two" * 100)
        commit(journal)
        journal.append(0, 1, 3, b"three")
        batch = journal.begin()
        assert batch is not None
        batch.run()
        job = journal.read_ahead(0, 1)
        job.run()
        assert [read.index for read in job.entries] == [1, 2]
        journal.end_read(job)
        journal.end(batch)

    def test_what_the_journal_does_not_hold_is_an_error(self) -> None:
        _disk, journal = new_journal()
        with pytest.raises(JournalError, match="not in the journal"):
            journal.read(0, 1)
        with pytest.raises(JournalError, match="not in the journal"):
            journal.read_ahead(3, 9)

    def test_replaced_entries_are_forgotten(self) -> None:
        disk, journal = new_journal()
        for index in range(1, 6):
            journal.append(0, 1, index, b"old %d" % index)
        commit(journal)
        journal.append(0, 2, 3, b"new 3")
        assert journal.last_index(0) == 3
        assert journal.entry(0, 3) == b"new 3"
        assert journal.entry(0, 4) is None
        commit(journal)
        with pytest.raises(JournalError):
            journal.read(0, 5)
        assert [journal.term(0, index) for index in range(1, 5)] == [1, 1, 2, 0]
        again, bodies = reopen(disk)
        assert bodies == [b"old 1", b"old 2", b"new 3"]
        assert (again.last_index(0), again.last_term(0)) == (3, 2)
        with pytest.raises(JournalError, match="not in the journal"):
            again.read(0, 5)

    def test_hard_states_come_back(self) -> None:
        disk, journal = new_journal()
        journal.append_hard_state(7, 3, 1, 0)
        commit(journal)
        journal.append_hard_state(7, 4, 2, 9)
        assert journal.hard_state(7) == (3, 1, 0)
        commit(journal)
        assert journal.hard_state(7) == (4, 2, 9)
        assert reopen(disk)[0].hard_state(7) == (4, 2, 9)
        assert reopen(disk)[0].hard_state(8) == (0, 0, 0)


class TestReferences:
    def test_live_bytes_follow_the_share_of_references(self) -> None:
        _disk, journal = new_journal()
        journal.append(0, 1, 1, bytes(952))
        commit(journal)
        journal.retain(0, 1, 10)
        assert journal.statistics().live_bytes == 1000
        journal.release(0, 1, 3)
        assert journal.statistics().live_bytes == 700
        journal.release(0, 1, 7)
        assert journal.statistics().live_bytes == 0
        assert journal.statistics().live_entries == 0

    def test_an_entry_may_be_applied_before_it_is_written(self) -> None:
        _disk, journal = new_journal()
        journal.append(0, 1, 1, bytes(952))
        journal.retain(0, 1, 2)
        commit(journal)
        assert journal.statistics().live_entries == 1
        assert journal.statistics().live_bytes == 1000

    def test_more_releases_than_references_are_refused(self) -> None:
        _disk, journal = new_journal()
        journal.append(0, 1, 1, b"one")
        commit(journal)
        journal.retain(0, 1, 1)
        with pytest.raises(JournalError, match="it has 1"):
            journal.release(0, 1, 2)
        with pytest.raises(JournalError, match="not in the journal"):
            journal.release(5, 1, 1)

    def test_a_dead_entry_leaves_the_cache(self) -> None:
        _disk, journal = new_journal()
        journal.append(0, 1, 1, bytes(500))
        commit(journal)
        journal.retain(0, 1, 1)
        assert journal.statistics().cache_bytes > 500
        journal.release(0, 1, 1)
        assert journal.statistics().cache_bytes == 0

    def test_segments_go_when_nothing_in_them_is_held(self) -> None:
        history = History()
        store = Store(new_disk(), history)
        for number in range(60):
            index = store.append(0, body_of([bytes([number]) * 2000]))
            store.commit()
            store.append(0, body_of([], [(index, 0)]))
            store.commit()
        assert store.journal.removable() == []
        before = len(store.journal.segments())
        store.checkpoint()
        store.maintain()
        assert before > 4
        assert len(store.journal.segments()) == 1
        names = store.disk.names("journal")
        assert len([name for name in names if name.endswith(".seg")]) == 3
        assert store.journal.statistics().entries_in_memory <= 1024
        store = Store(store.disk.crashed_copy(), history)
        store.check()

    def test_nothing_goes_before_recovery_is_finished(self) -> None:
        history = History()
        store = Store(new_disk(), history)
        run_workload(store, seed=1, commits=60)
        copy = store.disk.crashed_copy()
        journal, _recovered = Journal.recover(copy, OPTIONS, Checkpoint.read(copy))
        assert journal.removable() == []
        assert journal.rewrite_candidate(1.1) is None
        journal.finish_recovery()
        assert journal.removable() != []

    def test_a_segment_that_is_being_read_stays(self) -> None:
        history = History()
        store = Store(new_disk(), history)
        for number in range(30):
            index = store.append(0, body_of([bytes([number]) * 2000]))
            store.commit()
        job = store.journal.read_ahead(0, 1)
        for index in range(1, 31):
            store.append(0, body_of([], [(index, 0)]))
        store.commit()
        store.checkpoint()
        store.maintain()
        first = store.journal.segments()[0].number
        assert first == 1
        job.run()
        assert store.journal.end_read(job) == 1
        store.maintain()
        assert store.journal.segments()[0].number > 1


def test_options_are_checked() -> None:
    with pytest.raises(JournalError, match="multiple of 4096"):
        new_journal(options=dataclasses.replace(OPTIONS, segment_bytes=20_000))


def test_closing_in_order_needs_an_empty_queue() -> None:
    _disk, journal = new_journal()
    journal.append(0, 1, 1, b"one")
    with pytest.raises(JournalError, match="queued"):
        journal.close()
    journal.close(clean=False)


def test_no_file_stays_open() -> None:
    disk, journal = new_journal()
    for index in range(1, 20):
        journal.append(0, 1, index, bytes(4000))
        commit(journal)
        while (job := journal.maintenance()) is not None:
            job.run()
            journal.end_maintenance(job)
    assert disk.open_files == 4  # the open segment, two ready ones and the mark
    journal.close()
    assert disk.open_files == 0
