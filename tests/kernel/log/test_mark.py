"""The mark of what was synced: it tells a hole from the end, and never says too much."""

from __future__ import annotations

import pytest

from kernel.log.errors import JournalDamaged
from kernel.log.format.files import segment_name
from kernel.log.format.mark import MARK_NAME, Mark, read_mark
from kernel.log.format.record import RecordType
from kernel.log.journal import Journal
from tests.kernel.log.harness import META, OPTIONS, History, Store, body_of, new_disk
from tests.kernel.log.test_damage import ACCEPT, records, written_store
from tests.simulator.disk import SimulatedDisk


def test_the_limit_of_what_can_be_told_is_a_power_loss_that_took_the_mark() -> None:
    """The mark is written some milliseconds after a batch, and synced once a second."""
    history = History()
    store = Store(new_disk(), history)
    store.append(0, body_of([bytes(2_000)]))
    store.commit()
    offset, length, _kind = records(store.disk)[0]
    killed, crashed = store.disk.killed_copy(), store.disk.crashed_copy()
    for disk in (killed, crashed):
        disk.flip(segment_name(1), offset + length // 2)
    with pytest.raises(JournalDamaged):
        Store(killed, history)
    assert Journal.recover(crashed, OPTIONS, None)[0].last_index(0) == 0


def test_zeros_over_the_end_are_damage_if_the_mark_is_behind_it() -> None:
    store, history = written_store()
    store.maintain()
    disk = store.disk.crashed_copy()
    fifth = [row for row in records(disk) if row[2] == RecordType.ENTRY][-5][0]
    disk.overwrite(segment_name(1), fifth, bytes(OPTIONS.segment_bytes - fifth))

    with pytest.raises(JournalDamaged, match="10 records unreadable after being synced"):
        Store(disk, history)

    journal, recovered = Journal.recover(disk, ACCEPT, None)
    assert set(recovered.damaged) == {0, 1, 2}
    list(recovered.entries)
    journal.finish_recovery()
    mark, _ = read_mark(disk, META.store)
    assert mark.sequence == journal.synced_sequence, "what is lost and said is not said again"


def test_a_mark_that_is_torn_or_damaged_says_less_and_never_more() -> None:
    store, history = written_store()
    store.maintain()
    disk = store.disk.crashed_copy()
    newest, written = read_mark(disk, META.store)
    assert newest.sequence == store.journal.synced_sequence
    for slot in ((written & 1) * 512, (1 - (written & 1)) * 512):
        disk.flip(MARK_NAME, slot + 40)
        assert read_mark(disk, META.store)[0].sequence <= newest.sequence
    assert read_mark(disk, META.store) == (Mark(), 0)
    Store(disk, history).check()


def test_the_mark_is_never_ahead_of_the_disk() -> None:
    """Wherever the power fails: what it says was synced by then."""
    store = Store(new_disk(), History())
    copies: list[tuple[SimulatedDisk, int]] = []
    store.disk.on_boundary = lambda _n, _what: copies.extend(
        (store.disk.crashed_copy(seed), store.journal.synced_sequence) for seed in (1, 2)
    )
    for number in range(6):
        store.append(number % 2, body_of([b"x" * 900]))
        store.commit()
        store.maintain()
    for disk, synced in copies:
        assert read_mark(disk, META.store)[0].sequence <= synced
        assert not Journal.recover(disk, OPTIONS, None)[1].damaged


def test_an_empty_journal_is_no_new_one() -> None:
    store, history = written_store()
    store.maintain()
    disk = store.disk.crashed_copy()
    for name in disk.names("journal"):
        disk.remove("journal/" + name)
    with pytest.raises(JournalDamaged, match="no segment is there"):
        Store(disk, history)


def test_the_next_segment_that_is_gone_is_damage_if_the_mark_is_behind_it() -> None:
    """A batch that crossed into it may have been cut short, else."""
    store, history = written_store(commits=120)
    store.maintain()
    disk = store.disk.crashed_copy()
    last = read_mark(disk, META.store)[0].segment
    disk.remove(segment_name(last))
    with pytest.raises(JournalDamaged, match=f"segment {last} is missing"):
        Store(disk, history)
