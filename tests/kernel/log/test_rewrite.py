"""Sparse segments are rewritten slot by slot; until the closing record nothing has changed."""

from __future__ import annotations

import copy

import pytest

from kernel.log.errors import JournalError, RecordDamaged
from kernel.log.format import entry
from kernel.log.format.files import locations_name, segment_name
from kernel.log.format.location_file import PlacesRead
from kernel.log.reading.read import SliceRead
from kernel.log.reclaiming import rewrite
from kernel.log.reclaiming.rewrite import LiveSlots, RewriteJob
from tests.kernel.log.harness import History, Store, body_of, new_disk
from tests.simulator.disk import SimulatedDisk


def sparse_store(entries: int = 40) -> tuple[Store, History]:
    """Entries of 20 slots, of which all but one are settled, checkpointed."""
    history = History()
    store = Store(new_disk(), history)
    for number in range(entries):
        slots = [b"%03d/%02d " % (number, slot) * 15 for slot in range(20)]
        index = store.append(number % 2, body_of(slots))
        store.commit()
        store.append(number % 2, body_of([], [(index, s) for s in range(20) if s != number % 20]))
        store.commit()
    store.checkpoint()
    store.maintain()
    return store, history


def begin(store: Store, live_slots: LiveSlots | None = None) -> RewriteJob:
    """A rewrite that knows where the entries stand."""
    segment = store.journal.rewrite_candidate()
    assert segment is not None
    states = store.states
    job = store.journal.rewrite(segment, live_slots or (lambda group, at, _body: states[group][at]))
    survey = job.read()
    assert isinstance(survey, PlacesRead)
    survey.run()
    job.append(survey)
    return job


def next_part(job: RewriteJob) -> SliceRead | None:
    part = job.read()
    assert not isinstance(part, PlacesRead)
    return part


def test_sparse_segments_are_rewritten_and_go() -> None:
    store, history = sparse_store()
    before = store.journal.statistics()
    assert before.bytes_on_disk > 5 * before.live_bytes
    while store.rewrite_one(0.2):
        store.checkpoint()
        store.maintain()
    after = store.journal.statistics()
    assert after.rewrites > 2
    assert after.live_entries == before.live_entries
    assert after.bytes_on_disk < before.bytes_on_disk / 3
    store.check()
    for disk in (store.disk.crashed_copy(), store.disk.killed_copy()):
        again = Store(disk, history)
        again.check()
        assert again.journal.statistics().live_entries == after.live_entries


def test_a_rewritten_entry_keeps_its_slot_numbers() -> None:
    store, history = sparse_store()
    while store.rewrite_one(0.2):
        pass
    store = Store(store.disk.crashed_copy(), history)
    live = {group: dict(state) for group, state in store.states.items()}
    rewritten = 0
    for group, state in live.items():
        for index, slots in state.items():
            body = store.journal.read(group, index)
            written = history.bodies[group][index - 1]
            for slot in range(20):
                expected = entry.slot(written, slot)
                assert entry.slot(body, slot) in ((expected,) if slot in slots else (expected, b""))
            rewritten += len(body) < len(written)
    assert rewritten > 20


def test_settling_goes_on_during_a_rewrite() -> None:
    store, history = sparse_store()
    job = begin(store)
    part = next_part(job)
    assert part is not None
    part.run()
    job.append(part)
    first = part.entries[0]
    store.append(first.group, body_of([], [(first.index, s) for s in range(20)]))
    store.commit()
    assert first.index not in store.states[first.group]
    while (part := next_part(job)) is not None:
        part.run()
        job.append(part)
    while not job.close():
        store.commit()
    store.commit()
    assert job.closed
    store.check()
    store.checkpoint()
    store.maintain()
    again = Store(store.disk.crashed_copy(), history)
    again.check()
    assert again.journal.statistics().live_entries == store.journal.statistics().live_entries


def test_what_is_being_rewritten_is_read_at_its_old_place() -> None:
    store, history = sparse_store()
    job = begin(store)
    part = next_part(job)
    assert part is not None
    part.run()
    job.append(part)
    batch = store.journal.begin()
    assert batch is not None
    live = [e for e in part.entries if e.index in store.states[e.group]]
    assert live
    for held in live:
        written = history.bodies[held.group][held.index - 1]
        assert store.journal.read(held.group, held.index) == written
    batch.run()
    store.journal.end(batch)


def half_dead(store: Store, kept: set[int]) -> None:
    """Entries of one segment, of which those of some numbers stay."""
    for number in range(12):
        store.append(0, body_of([b"%d" % number * 400]))
        store.commit()
    store.append(0, body_of([], [(at + 1, 0) for at in range(12) if at not in kept]))
    store.commit()
    for _ in range(30):  # until that segment is sealed, and has its location file
        index = store.append(1, body_of([b"z" * 3000]))
        store.commit()
        store.append(1, body_of([], [(index, 0)]))
        store.commit()
        store.maintain()
    store.checkpoint()


@pytest.mark.parametrize(
    ("gap", "kept", "read"), [(0, {4}, {4}), (0, {2, 3, 7}, {2, 3, 7}), (4_096, {2, 4}, {2, 3, 4})]
)
def test_only_what_is_live_is_read_and_what_lies_between(
    monkeypatch: pytest.MonkeyPatch, gap: int, kept: set[int], read: set[int]
) -> None:
    monkeypatch.setattr(rewrite, "GAP_BYTES", gap)
    history = History()
    store = Store(new_disk(), history)
    half_dead(store, kept)
    job = begin(store)
    found = set()
    while (part := next_part(job)) is not None:
        part.run()
        found.update(each.index - 1 for each in part.entries if each.group == 0)
        job.append(part)
        store.commit()
    assert found == read
    while not job.close():
        store.commit()
    store.commit()
    assert job.closed
    store.check()
    Store(store.disk.crashed_copy(), history).check()


@pytest.mark.parametrize(
    ("slice_bytes", "parts"),
    [(1 << 20, [[2, 3, 7, 9]]), (1_024, [[2, 3], [7, 9]]), (1, [[2], [3], [7], [9]])],
)
def test_what_lies_far_apart_is_read_together_up_to_a_slice(
    monkeypatch: pytest.MonkeyPatch, slice_bytes: int, parts: list[list[int]]
) -> None:
    monkeypatch.setattr(rewrite, "GAP_BYTES", 0)
    monkeypatch.setattr(rewrite, "SLICE_BYTES", slice_bytes)
    store = Store(new_disk(), History())
    half_dead(store, {2, 3, 7, 9})
    job = begin(store)
    found = []
    while (part := next_part(job)) is not None:
        part.run()
        found.append([each.index - 1 for each in part.entries if each.group == 0])
        job.append(part)
        store.commit()
    assert [each for each in found if each] == parts


def test_dead_entries_are_passed_over_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite, "LOOKS_MAX", 4)
    monkeypatch.setattr(rewrite, "GAP_BYTES", 0)
    store = Store(new_disk(), History())
    half_dead(store, {11})
    job = begin(store)
    parts = []
    while (part := next_part(job)) is not None:
        part.run()
        parts.append([each.index for each in part.entries if each.group == 0])
        job.append(part)
        store.commit()
    assert parts[:3] == [[5], [10], [12]]


def test_without_a_location_file_all_of_the_segment_is_read() -> None:
    store, history = sparse_store()
    segment = store.journal.rewrite_candidate()
    assert segment is not None
    store.disk.remove(locations_name(segment.number))
    job = begin(store)
    part = next_part(job)
    assert part is not None
    part.run()
    states = store.states
    assert any(each.index not in states[each.group] for each in part.entries)
    job.append(part)
    store.commit()
    assert job.close()
    store.commit()
    assert job.closed
    Store(store.disk.crashed_copy(), history).check()


def test_a_segment_of_which_something_live_was_not_met_is_not_given_up() -> None:
    store, history = sparse_store()
    job = begin(store)
    places = job._survey.places
    assert places is not None
    del places[
        next(n for n, each in enumerate(places) if store.states[each.entry[0]].get(each.entry[1]))
    ]
    while (part := next_part(job)) is not None:
        part.run()
        job.append(part)
    store.commit()
    with pytest.raises(RecordDamaged, match="live entries"):
        job.close()
    store.journal.abandon_rewrite(job)
    store.commit()
    store.check()
    Store(store.disk.crashed_copy(), history).check()


def test_slices_are_bounded() -> None:
    store, _history = sparse_store()
    job = begin(store)
    while (part := next_part(job)) is not None:
        part.run()
        assert job.append(part) <= 1024 * 1024
        store.commit()


def test_nothing_goes_before_the_closing_record_is_synced() -> None:
    store, _history = sparse_store()
    job = begin(store)
    source = job.source.number
    while (part := next_part(job)) is not None:
        part.run()
        job.append(part)
    assert not job.close()
    store.commit()
    assert job.close()
    assert not job.closed
    assert source not in [segment.number for segment in store.journal.removable()]
    store.commit()
    assert job.closed
    assert source in [segment.number for segment in store.journal.removable()]


def test_what_is_rewritten_but_not_closed_stays() -> None:
    """The segment with the new records looks dead until the closing record counts."""
    store, history = sparse_store()
    job = begin(store)
    while (part := next_part(job)) is not None:
        part.run()
        job.append(part)
    store.commit()
    for _ in range(30):
        index = store.append(0, body_of([b"z" * 3000]))
        store.commit()
        store.append(0, body_of([], [(index, 0)]))
        store.commit()
    store.checkpoint()
    store.maintain()
    assert job.close()
    store.commit()
    assert job.closed
    store.checkpoint()
    store.maintain()
    store.check()
    Store(store.disk.crashed_copy(), history).check()


def test_one_rewrite_at_a_time() -> None:
    store, _history = sparse_store()
    job = begin(store)
    assert store.journal.rewrite_candidate() is None
    with pytest.raises(JournalError, match="under way"):
        store.journal.rewrite(job.source, lambda _group, _index, _body: ())


def test_disagreement_about_what_is_live_stops_the_rewrite() -> None:
    store, _history = sparse_store()
    job = begin(store, lambda _group, _index, _body: ())
    part = next_part(job)
    assert part is not None
    part.run()
    with pytest.raises(JournalError, match="no live slot"):
        job.append(part)


def test_a_segment_that_does_not_read_is_left_alone() -> None:
    store, _history = sparse_store()
    job = begin(store)
    store.disk.flip(segment_name(job.source.number), 4096 + 1000)
    part = next_part(job)
    assert part is not None
    with pytest.raises(RecordDamaged):
        part.run()
    store.journal.abandon_rewrite(job)
    candidate = store.journal.rewrite_candidate()
    assert candidate is not None
    assert candidate.number != job.source.number


def test_an_abandoned_rewrite_leaves_nothing_behind() -> None:
    store, history = sparse_store()
    job = begin(store)
    part = next_part(job)
    assert part is not None
    part.run()
    job.append(part)
    store.journal.abandon_rewrite(job)
    assert not store.rewrite_one(0.2)  # not while what it queued is not written
    store.commit()
    assert store.rewrite_one(0.2)
    store.check()
    Store(store.disk.crashed_copy(), history).check()


@pytest.mark.parametrize("torn", [False, True], ids=["clean", "torn"])
def test_a_crash_anywhere_in_a_rewrite_loses_nothing(torn: bool) -> None:
    store, history = sparse_store(entries=24)
    copies: list[SimulatedDisk] = []
    disk = store.disk
    disk.on_boundary = lambda n, _what: copies.append(disk.crashed_copy(n if torn else None))
    while store.rewrite_one(0.2):
        store.checkpoint()
        store.maintain()
    disk.on_boundary = None
    assert store.journal.statistics().rewrites >= 2
    assert len(copies) > 70
    for after in copies:
        again = Store(after, copy.deepcopy(history))
        again.check()
        # And the rewrite can be done again from there.
        again.rewrite_one(0.2)
        again.checkpoint()
        again.maintain()
        again.check()


def test_the_closing_record_may_go_before_what_it_closed() -> None:
    """The segment with the CLOSE is removed first: the checkpoint still names the rewrite."""
    store, history = sparse_store(entries=24)
    while store.rewrite_one(0.2):
        pass
    # Fill segments with what is settled at once, so that the closing records' segments go.
    for _ in range(40):
        index = store.append(0, body_of([b"z" * 3000]))
        store.commit()
        store.append(0, body_of([], [(index, 0)]))
        store.commit()
        store.maintain()
    store.checkpoint()
    store.maintain()
    numbers = [segment.number for segment in store.journal.segments()]
    assert numbers[-1] - numbers[0] >= len(numbers)
    again = Store(store.disk.crashed_copy(), history)
    again.check()
    assert again.journal.statistics().live_entries == 24
