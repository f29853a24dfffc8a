"""Changed bits in synced data are damage and never cut; torn writes are cut and never damage."""

from __future__ import annotations

import dataclasses
import random

import pytest

from kernel.log.errors import FormatError, JournalDamaged, JournalError, RecordDamaged
from kernel.log.format.checkpoint import Checkpoint, Cut
from kernel.log.format.files import locations_name, segment_name
from kernel.log.format.location_file import read_location_file
from kernel.log.format.mark import MARK_NAME
from kernel.log.format.meta import read_meta, write_meta
from kernel.log.format.record import RecordType, seed_of
from kernel.log.format.segment_reader import SegmentReader
from kernel.log.journal import Journal
from kernel.log.recovering.evidence import Lookout
from tests.kernel.log.harness import (
    META,
    OPTIONS,
    History,
    Store,
    body_of,
    close_cleanly,
    new_disk,
    run_workload,
)
from tests.simulator.disk import SimulatedDisk

ACCEPT = dataclasses.replace(OPTIONS, accept_damage=True)


def written_store(commits: int = 12, groups: int = 3) -> tuple[Store, History]:
    """A store with some commits, not checkpointed, all in the page cache and on disk."""
    history = History()
    store = Store(new_disk(), history)
    chance = random.Random(1)
    for number in range(commits):
        store.append(number % groups, body_of([chance.randbytes(700)]))
        store.commit()
    return store, history


def records(disk: SimulatedDisk, number: int = 1) -> list[tuple[int, int, int]]:
    """(offset, length, type) of the records of a segment."""
    file = disk.open(segment_name(number))
    reader = SegmentReader(file, file.size(), seed_of(META.store))
    found = [(offset, header.length, header.type) for offset, header in reader.records(4096)]
    file.close()
    return found


def test_a_flipped_bit_anywhere_in_synced_records_is_damage() -> None:
    store, history = written_store()
    disk = store.disk.crashed_copy()
    found = records(disk)
    for offset, length, _kind in found:
        for at in {offset, offset + 5, offset + 9, offset + 17, offset + 30, offset + length - 1}:
            damaged = disk.crashed_copy()
            damaged.flip(segment_name(1), at, bit=3)
            with pytest.raises(JournalDamaged, match="segment 1 at"):
                Store(damaged, history)
            assert read_meta(damaged) == META
            assert damaged.names("journal") == disk.names("journal")


def test_the_last_batch_is_no_exception() -> None:
    """No later record proves that the last batch was synced: its written sectors do."""
    store, history = written_store(commits=1)
    disk = store.disk.crashed_copy()
    offset, length, _kind = records(disk)[0]
    disk.flip(segment_name(1), offset + length // 2)
    with pytest.raises(JournalDamaged):
        Store(disk, history)


@pytest.mark.parametrize("proof", ["nothing", "a later batch"])
def test_a_sector_of_zeros_in_the_last_batch_may_be_one_that_was_never_written(proof: str) -> None:
    """The limit of what can be told without a mark: it ends with the next batch."""
    history = History()
    store = Store(new_disk(), history)
    store.append(0, body_of([bytes(2_000)]))
    store.commit()
    if proof == "a later batch":
        store.append(1, body_of([b"later"]))
        store.commit()
    disk = store.disk.crashed_copy()
    offset, length, _kind = records(disk)[0]
    disk.flip(segment_name(1), offset + length // 2)
    if proof == "nothing":
        disk.remove(MARK_NAME)
        journal, recovered = Journal.recover(disk, OPTIONS, None)
        assert not recovered.damaged
        assert journal.last_index(0) == 0
    else:
        with pytest.raises(JournalDamaged, match="1 record unreadable after being synced"):
            Store(disk, history)


def test_of_a_checkpoints_segment_what_stands_before_it_is_below_it() -> None:
    history = History()
    store = Store(new_disk(), history)
    first = store.append(0, body_of([bytes(2_000)]))
    store.commit()
    store.checkpoint()
    disk = store.disk.crashed_copy()
    offset, length, _kind = records(disk)[0]
    disk.flip(segment_name(1), offset + length // 2)

    journal, recovered = Journal.recover(disk, OPTIONS, Checkpoint.read(disk))

    assert (recovered.damaged, recovered.unreadable, recovered.unread) == ({}, True, 1)
    assert not journal.has(0, first)


def test_a_journal_that_begins_later_than_its_first_record_needs_its_checkpoint() -> None:
    """What was before stands in snapshots, of which nobody knows any more."""
    store, history = written_store(commits=120)
    store.checkpoint()
    disk = store.disk.crashed_copy()
    disk.remove("ckpt")
    disk.remove(segment_name(1))
    with pytest.raises(JournalDamaged, match="and so is ckpt"):
        Store(disk, history)


def test_a_file_that_is_shorter_than_its_segment_is_damage() -> None:
    store, history = written_store()
    disk = store.disk.crashed_copy()
    disk.remove(MARK_NAME)
    content = disk.content(segment_name(1))
    end = records(disk)[-1][0]
    disk.put(segment_name(1), content[:end])
    with pytest.raises(JournalDamaged, match="cut short"):
        Store(disk, history)


class Plain:
    """A journal with two groups, each entry a batch of its own."""

    def __init__(self) -> None:
        self.disk = new_disk()
        self.journal, _ = Journal.recover(self.disk, OPTIONS, None)
        self.journal.finish_recovery()

    def write(self, group: int, term: int, index: int, size: int = 10) -> int:
        """One entry; the segment that it ends in."""
        self.journal.append(group, term, index, body_of([bytes(size)]))
        batch = self.journal.begin()
        assert batch is not None
        batch.run()
        self.journal.end(batch)
        return batch.parts[-1].segment.number

    def fill(self, group: int, index: int, segment: int) -> int:
        """Entries from `index` on, until one stands behind the segment; that one."""
        while self.write(group, 1, index, 3_000) == segment:
            index += 1
        return index

    def checkpoint(self, segment: int, **groups: int) -> SimulatedDisk:
        """The disk with a checkpoint that begins in that segment."""
        marks = {int(name[1:]): (index, "snap") for name, index in groups.items()}
        job = self.journal.checkpoint(marks)
        assert job.checkpoint.position.segment == segment
        job.run()
        return self.disk.crashed_copy()


def test_what_was_replaced_is_not_missed_although_its_beginning_is_gone() -> None:
    """Its segment went with a checkpoint, and what followed it stands where recovery begins."""
    plain = Plain()
    for index in range(1, 6):
        assert plain.write(0, 1, index) == 1
    filled = plain.fill(1, 1, segment=1)
    assert plain.write(0, 1, 6) == plain.write(0, 1, 7) == 2
    assert plain.write(0, 2, 3) == 2
    after = plain.checkpoint(2, g0=3, g1=filled)
    after.remove(segment_name(1))

    _, recovered = Journal.recover(after, OPTIONS, Checkpoint.read(after))

    assert not recovered.damaged
    assert recovered.last[0] == (3, 2)


def test_what_was_replaced_does_not_come_back_although_what_replaced_it_is_gone() -> None:
    """Seed 2173 of the simulator: its segment is kept for something else that is live, while that
    of the entry in its place, which a snapshot has applied, went with the checkpoint. Behind an
    entry of term 2 the log had some of term 1 again, and so looked older than it was.
    """
    plain = Plain()
    for index in range(1, 6):
        assert plain.write(0, 1, index) == 1
    filled = plain.fill(1, 1, segment=1)
    assert plain.write(0, 2, 3) == 2
    filled = plain.fill(1, filled + 1, segment=2)
    after = plain.checkpoint(3, g0=3, g1=filled)
    after.remove(segment_name(2))

    _, recovered = Journal.recover(after, OPTIONS, Checkpoint.read(after))

    assert not recovered.damaged
    assert recovered.last[0] == (3, 2)


def test_damage_names_the_groups_that_lost_something() -> None:
    store, history = written_store()
    disk = store.disk.crashed_copy()
    entries = [row for row in records(disk) if row[2] == RecordType.ENTRY]
    disk.flip(segment_name(1), entries[4][0] + 100)  # the fifth entry is group 1's second

    journal, recovered = Journal.recover(disk, ACCEPT, None)

    assert list(recovered.damaged) == [1]
    assert journal.last_index(1) == 1
    assert journal.last_index(0) == history.acked[0]
    assert journal.last_index(2) == history.acked[2]
    replayed = [(group, index, body) for group, index, _term, body in recovered.entries]
    assert [(g, i) for g, i, _ in replayed if g != 1] == [
        (number % 3, number // 3 + 1) for number in range(12) if number % 3 != 1
    ]
    for group, index, body in replayed:
        assert body == history.bodies[group][index - 1]


def test_damage_without_its_closing_record_concerns_every_group() -> None:
    store, _history = written_store()
    disk = store.disk.crashed_copy()
    (first, _, _), (closing, _, kind) = records(disk)[6:8]
    assert kind == RecordType.BATCH_END
    disk.flip(segment_name(1), first + 100)
    disk.flip(segment_name(1), closing + 50)

    _journal, recovered = Journal.recover(disk, ACCEPT, None)

    assert set(recovered.damaged) == {0, 1, 2}


def test_whole_batches_lost_at_the_start_are_damage_of_everybody() -> None:
    """Nothing tells whose they were: a group may have had nothing since."""
    history = History()
    store = Store(new_disk(), history)
    store.append(7, body_of([b"of a group that is quiet from then on"]))
    store.commit()
    run_workload(store, seed=4, commits=5, groups=2)
    disk = store.disk.crashed_copy()
    ends = [row for row in records(disk) if row[2] == RecordType.BATCH_END]
    first_batch_end = ends[0][0] + ends[0][1]
    disk.overwrite(segment_name(1), 4096, bytes(first_batch_end - 4096))

    _journal, recovered = Journal.recover(disk, ACCEPT, None)

    assert recovered.damaged


def test_accepted_damage_is_remembered() -> None:
    store, _history = written_store()
    disk = store.disk.crashed_copy()
    disk.flip(segment_name(1), records(disk)[0][0] + 100)
    journal, recovered = Journal.recover(disk, ACCEPT, None)
    damaged = set(recovered.damaged)
    assert damaged
    list(recovered.entries)
    journal.finish_recovery()
    job = journal.checkpoint({})
    job.run()
    journal.checkpointed(job)

    again = disk.crashed_copy()
    _journal, recovered = Journal.recover(again, OPTIONS, Checkpoint.read(again))

    assert set(recovered.damaged) == damaged


def test_a_segment_that_is_gone_is_damage() -> None:
    store, history = written_store(commits=120)
    disk = store.disk.crashed_copy()
    numbers = [each.number for each in store.journal.segments()]
    assert len(numbers) > 3
    disk.remove(segment_name(numbers[1]))
    with pytest.raises(JournalDamaged, match="missing"):
        Store(disk, history)


def test_a_lost_write_in_the_middle_is_damage() -> None:
    """Sectors that the disk said it had written, and had not: they read as zeros."""
    store, history = written_store()
    disk = store.disk.crashed_copy()
    disk.overwrite(segment_name(1), records(disk)[4][0], bytes(2048))
    with pytest.raises(JournalDamaged):
        Store(disk, history)


def test_a_journal_that_ends_before_its_clean_mark_is_damaged() -> None:
    store, history = written_store()
    close_cleanly(store)
    disk = store.disk.crashed_copy()
    offset, length, _kind = records(disk)[-1]
    disk.overwrite(segment_name(1), offset, bytes(length))
    with pytest.raises(JournalDamaged):
        Store(disk, history)


def test_a_journal_that_ends_before_its_checkpoint_is_damaged() -> None:
    store, history = written_store()
    store.checkpoint()
    disk = store.disk.crashed_copy()
    offset, length, _kind = records(disk)[-1]
    disk.overwrite(segment_name(1), offset, bytes(length))
    with pytest.raises(JournalDamaged):
        Store(disk, history)


@pytest.mark.parametrize("seed", range(40))
def test_a_torn_batch_is_cut(seed: int) -> None:
    """The last batch was never synced: any set of its sectors may be there."""
    store, history = written_store(commits=5)
    acked = dict(history.acked)
    for group in (0, 1, 2, 0):
        store.append(group, body_of([random.Random(seed + group).randbytes(900)] * 2))
    batch = store.journal.begin()
    assert batch is not None
    store.disk.fail("fdatasync", OSError(5, "Input/output error"))
    store.disk.on_boundary = lambda _n, what: (
        torn.append(store.disk.crashed_copy(seed)) if what.startswith("written") else None
    )
    torn: list[SimulatedDisk] = []
    with pytest.raises(OSError, match="Input"):
        batch.run()

    after = Store(torn[0], history)

    after.check()
    assert not after.recovered.damaged
    assert all(after.journal.last_index(group) >= index for group, index in acked.items())


def test_damage_below_the_checkpoint_is_found_when_it_is_read() -> None:
    history = History()
    store = Store(new_disk(), history)
    first = store.append(0, body_of([b"m" * 2000]))
    store.commit()
    run_workload(store, seed=4, commits=20, groups=2)
    store.checkpoint()
    disk = store.disk.killed_copy()
    disk.flip(segment_name(1), 4096 + 500)
    assert locations_name(1) in [f"journal/{name}" for name in disk.names("journal")]

    again = Store(disk, history)

    with pytest.raises(RecordDamaged, match="segment 1"):
        again.journal.read(0, first)
    job = again.journal.read_ahead(0, first)
    with pytest.raises(RecordDamaged, match="entry 1 of group 0"):
        job.run()


def test_without_location_files_nothing_changes() -> None:
    history = History()
    store = Store(new_disk(), history)
    run_workload(store, seed=4, commits=60)
    disk = store.disk.crashed_copy()
    for name in disk.names("journal"):
        if name.endswith(".loc"):
            disk.remove("journal/" + name)
    again = Store(disk, history)
    again.check()
    assert any(name.endswith(".loc") for name in disk.names("journal"))


def test_a_damaged_location_file_is_ignored() -> None:
    history = History()
    store = Store(new_disk(), history)
    run_workload(store, seed=4, commits=60)
    disk = store.disk.killed_copy()
    names = [name for name in disk.names("journal") if name.endswith(".loc")]
    assert names
    for name in names:
        disk.flip("journal/" + name, 200)
        assert read_location_file(disk, int(name[:-4]), seed_of(META.store)) is None
    Store(disk, history).check()


def test_below_the_checkpoint_only_what_is_unreadable_is_lost() -> None:
    """A snapshot holds the state: who refers to the entry that is gone is told so."""
    history = History()
    store = Store(new_disk(), history)
    first = store.append(0, body_of([b"m" * 2000]))
    store.commit()
    run_workload(store, seed=4, commits=20, groups=2)
    store.checkpoint()
    disk = store.disk.killed_copy()
    oldest = store.journal.segments()[0].number
    assert oldest < store.journal.last_checkpoint.position.segment
    disk.remove(locations_name(oldest))
    disk.flip(segment_name(oldest), 4096 + 300)

    journal, recovered = Journal.recover(disk, OPTIONS, Checkpoint.read(disk))

    assert not recovered.damaged
    assert not journal.has(0, first)
    assert all(journal.has(*each) for each in store.journal._locations.held() if each != (0, first))


def test_what_is_behind_damage_is_found_though_a_segment_that_a_cut_names_is_gone() -> None:
    """After several damaged starts: what is to be found then is the segment after that."""
    store, _ = written_store()
    disk, first, gone, last = store.disk.crashed_copy(), 1, 7, 9
    disk.rename(segment_name(first), segment_name(last))
    cuts = {first: Cut(4176, gone), gone: Cut(4176, last)}
    lookout = Lookout(disk, META.store, [last], cuts)
    found = lookout.behind(first, 0, None, 1, bounded=False)
    assert found.synced
    assert found.resume is not None
    assert found.resume.segment == last


def test_another_stores_segment_is_refused() -> None:
    store, history = written_store()
    disk = store.disk.crashed_copy()
    strange = dataclasses.replace(META, store=bytes(16))
    write_meta(disk, strange)
    with pytest.raises(FormatError, match="another store"):
        Store(disk, history)


def test_a_body_made_to_look_like_records_is_no_record() -> None:
    """A message may hold a copy of this very journal: its records must not be found inside."""
    store, history = written_store(commits=3)
    stolen = store.disk.content(segment_name(1))[4096:6096]
    store.append(0, body_of([stolen]))
    store.commit()
    store.append(1, body_of([b"later"]))
    store.commit()
    disk = store.disk.crashed_copy()
    holder = [row for row in records(disk) if row[2] == RecordType.ENTRY][-2]
    disk.flip(segment_name(1), holder[0] + 5)  # its own length is unreadable
    with pytest.raises(JournalDamaged):
        Store(disk, history)
    journal, recovered = Journal.recover(disk, ACCEPT, None)
    assert journal.last_index(0) == 1
    assert list(recovered.damaged) == [0]
    assert [(group, index) for group, index, _, _ in recovered.entries] == [
        (0, 1),
        (1, 1),
        (2, 1),
        (1, 2),
    ]


def test_a_journal_without_identity_is_refused() -> None:
    store, history = written_store()
    disk = store.disk.crashed_copy()
    disk.remove("store.meta")
    with pytest.raises(JournalError, match=r"store\.meta is missing"):
        Store(disk, history)


def test_a_damaged_checkpoint_is_refused() -> None:
    store, history = written_store()
    store.checkpoint()
    disk = store.disk.crashed_copy()
    disk.flip("ckpt", 60)
    with pytest.raises(FormatError, match="ckpt is damaged"):
        Store(disk, history)


def test_a_vote_that_a_checkpoint_holds_is_not_forgotten_with_its_record() -> None:
    """Behind it an earlier vote reads, in the segment that the checkpoint begins in."""
    history = History()
    store = Store(new_disk(), history)
    for term in (4, 5):
        store.journal.append_hard_state(0, term, term, term)
        store.append(0, body_of([b"entry"]))
        store.commit()
    store.checkpoint()
    store.append(0, body_of([b"behind the checkpoint"]))
    store.commit()
    disk = store.disk.crashed_copy()
    states = [each for each in records(disk) if each[2] == RecordType.HARD_STATE]
    offset, length, _kind = states[1]
    disk.flip(segment_name(1), offset + length - 1)
    after = Store(disk, history)
    assert after.recovered.unreadable
    assert after.journal.hard_state(0) == (5, 5, 5)
