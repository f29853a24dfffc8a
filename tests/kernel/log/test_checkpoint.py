"""`ckpt` and `store.meta`: what they hold, and that each is the old or the new one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.log.errors import FormatError, JournalError
from kernel.log.format.checkpoint import (
    Checkpoint,
    Cut,
    GroupCheckpoint,
    HardState,
    Position,
    decode_checkpoint,
    encode_checkpoint,
)
from kernel.log.format.meta import CleanEnd, StoreMeta, ensure_meta, read_meta, write_meta
from kernel.log.format.record import Close
from kernel.log.journal import Journal
from kernel.log.locations import pack_position
from tests.kernel.log.harness import META, OPTIONS, History, Store, body_of, new_disk, run_workload
from tests.simulator.disk import SimulatedDisk

U64 = st.integers(0, 2**64 - 1)
HARD_STATES = st.builds(HardState, U64, U64, U64)
GROUPS = st.builds(GroupCheckpoint, U64, U64, st.text(max_size=30), HARD_STATES)
CHECKPOINTS = st.builds(
    Checkpoint,
    st.binary(min_size=16, max_size=16),
    st.builds(Position, U64, U64),
    U64,
    st.dictionaries(U64, GROUPS, max_size=5),
    st.dictionaries(U64, st.builds(Cut, U64, U64), max_size=3),
    st.lists(st.builds(Close, U64, U64, U64, U64, U64), max_size=3).map(tuple),
    st.frozensets(U64, max_size=3),
)


class Bits:
    """`kernel.common.ports.Random` that counts."""

    def __init__(self) -> None:
        self.next = 1

    def bits(self, count: int) -> int:
        self.next += 1
        return self.next % (1 << count)


@given(CHECKPOINTS)
def test_checkpoints_read_as_written(checkpoint: Checkpoint) -> None:
    assert decode_checkpoint(encode_checkpoint(checkpoint)) == checkpoint


@given(CHECKPOINTS, st.data())
def test_a_changed_checkpoint_is_refused(checkpoint: Checkpoint, data: st.DataObject) -> None:
    content = bytearray(encode_checkpoint(checkpoint))
    bit = data.draw(st.integers(0, 8 * len(content) - 1))
    content[bit // 8] ^= 1 << bit % 8
    with pytest.raises(FormatError):
        decode_checkpoint(bytes(content))


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_a_crash_while_it_is_written_leaves_the_old_or_the_new(seed: int | None) -> None:
    history = History()
    store = Store(new_disk(), history)
    run_workload(store, seed=1, commits=25)
    old = Checkpoint.read(store.disk)
    disk = store.disk
    copies: list[SimulatedDisk] = []
    disk.on_boundary = lambda n, _what: copies.append(
        disk.crashed_copy(None if seed is None else 100 * seed + n)
    )
    store.checkpoint()
    disk.on_boundary = None
    new = Checkpoint.read(disk)
    assert old != new
    found = []
    for copy in copies:
        after = Checkpoint.read(copy)
        assert after in (old, new)
        found.append(after)
        Store(copy, history).check()
    assert found[0] == old
    assert found[-1] == new


def test_a_checkpoint_keeps_the_snapshots_of_groups_left_out() -> None:
    history = History()
    store = Store(new_disk(), history)
    run_workload(store, seed=1, commits=25)
    store.checkpoint()
    before = Checkpoint.read(store.disk)
    assert before is not None
    job = store.journal.checkpoint({})
    assert job.checkpoint.groups == before.groups


def test_a_checkpoint_that_did_not_run_does_not_count() -> None:
    store = Store(new_disk(), History())
    job = store.journal.checkpoint({})
    with pytest.raises(JournalError, match="not on disk"):
        store.journal.checkpointed(job)


def test_a_checkpoint_beyond_the_log_is_refused() -> None:
    store = Store(new_disk(), History())
    store.append(0, body_of([]))
    store.commit()
    with pytest.raises(JournalError, match="no entry 2"):
        store.journal.checkpoint({0: (2, "snap")})


def test_what_was_replaced_above_the_mark_does_not_come_back() -> None:
    """Entries 2 to 4 of term 1, then 2 of term 2, applied: 3 and 4 stand on disk before it."""
    history = History()
    store = Store(new_disk(), history)
    for number in range(1, 5):
        store.append(0, body_of([b"old %d" % number]))
        if number == 1:
            store.commit()
    store.append_at(0, 2, body_of([b"new 2"]), term=2)
    store.commit()
    store.checkpoint()
    again = Store(store.disk.crashed_copy(), history)
    again.check()
    assert (again.journal.last_index(0), again.journal.last_term(0)) == (2, 2)
    again.append(0, body_of([b"new 3"]), term=2)
    again.commit()
    Store(again.disk.crashed_copy(), history).check()


def test_what_is_being_replaced_is_needed_until_its_replacement_is_synced() -> None:
    """Power may fail before that: then it is the log, and may have been acknowledged."""
    disk = new_disk()
    journal, _ = Journal.recover(disk, OPTIONS, None)
    journal.finish_recovery()
    old = body_of([b"old"])

    def write() -> None:
        batch = journal.begin()
        assert batch is not None
        batch.run()
        journal.end(batch)

    for index in range(1, 5):
        journal.append(0, 1, index, old)
        write()
    before = journal.last_checkpoint.position
    journal.append(0, 2, 2, body_of([b"new"]))
    queued = journal.checkpoint({0: (1, "snap")})
    batch = journal.begin()
    assert batch is not None
    on_its_way = journal.checkpoint({0: (1, "snap")})
    assert queued.checkpoint.position == on_its_way.checkpoint.position == before
    on_its_way.run()
    after = disk.crashed_copy()
    _, recovered = Journal.recover(after, OPTIONS, Checkpoint.read(after))
    assert recovered.last[0] == (4, 1)
    assert [(index, body) for _, index, _, body in recovered.entries] == [
        (index, old) for index in range(2, 5)
    ]
    batch.run()
    journal.end(batch)
    assert journal.checkpoint({0: (1, "snap")}).checkpoint.position > before


def test_a_checkpoint_never_goes_back() -> None:
    history = History()
    store = Store(new_disk(), history)
    run_workload(store, seed=1, commits=25)
    with pytest.raises(JournalError, match="has applied"):
        store.journal.checkpoint({0: (1, "old")})


def test_a_checkpoint_that_would_need_what_may_be_gone_is_refused() -> None:
    history = History()
    store = Store(new_disk(), history)
    run_workload(store, seed=1, commits=25)
    store.checkpoint()
    journal = store.journal
    last = journal.last_index(0)
    store.append(0, body_of([b"needed"]))
    store.commit()
    _, _, length = journal._locations.locate(0, last + 1)
    journal._locations.place(0, last + 1, pack_position(1, 4096), length)
    with pytest.raises(JournalError, match="behind one from"):
        journal.checkpoint({})


def test_entries_behind_the_marks_are_replayed_in_order() -> None:
    history = History()
    store = Store(new_disk(), history)
    run_workload(store, seed=1, commits=18)
    job = store.journal.checkpoint({0: (5, "old")})
    history.snapshots["old"] = history.state_at(0, 5)
    job.run()
    again = Store(store.disk.crashed_copy(), history)
    again.check()
    by_group: dict[int, list[int]] = {}
    for group, index, _term, _body in again.replayed:
        by_group.setdefault(group, []).append(index)
    assert by_group[0] == list(range(6, again.journal.last_index(0) + 1))


class TestMeta:
    def test_bytes(self) -> None:
        disk = SimulatedDisk()
        write_meta(disk, StoreMeta(META.node, META.store, CleanEnd(1, 2, 3)))
        assert disk.content("store.meta").hex() == (
            "574549524d45544101000000000102030405060708090a0b0c0d0e0f"
            "6465666768696a6b6c6d6e6f7071727301"
            "010000000000000002000000000000000300000000000000"
            "db0caa41"
        )

    def test_a_new_directory_gets_an_identity_once(self) -> None:
        disk = SimulatedDisk()
        random = Bits()
        meta = ensure_meta(disk, random)
        assert meta.node != meta.store
        assert ensure_meta(disk.crashed_copy(), random) == meta

    def test_a_journal_without_identity_is_refused(self) -> None:
        disk = SimulatedDisk()
        disk.put("journal/00000001.seg", b"")
        with pytest.raises(JournalError, match="missing beside a journal"):
            ensure_meta(disk, Bits())

    @pytest.mark.parametrize(
        ("change", "message"),
        [((0, b"X"), "not the identity"), ((13, b"\xff"), "damaged"), ((70, b"\xff"), "damaged")],
    )
    def test_a_changed_identity_is_refused(self, change: tuple[int, bytes], message: str) -> None:
        disk = new_disk()
        disk.overwrite("store.meta", *change)
        with pytest.raises(FormatError, match=message):
            read_meta(disk)
