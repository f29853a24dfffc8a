"""Where very much is queued, groups with little to write go before, in a batch of their own."""

from __future__ import annotations

from kernel.log.journal import Journal
from kernel.log.writer import LITTLE_SHARE
from tests.kernel.log.harness import OPTIONS, commit, new_journal, reopen

MUCH = bytes(OPTIONS.long_bytes)
LITTLE = bytes(OPTIONS.long_bytes // LITTLE_SHARE)
LARGE_GROUP, SMALL_GROUP, OTHER_GROUP = 1, 2, 3


def queue(journal: Journal, group: int, body: bytes) -> int:
    index = journal.last_index(group) + 1
    journal.append(group, 1, index, body)
    return index


def test_a_group_with_little_does_not_wait_for_one_with_much() -> None:
    _disk, journal = new_journal()
    queue(journal, LARGE_GROUP, MUCH)
    queue(journal, SMALL_GROUP, LITTLE)
    queue(journal, LARGE_GROUP, LITTLE)
    journal.append_hard_state(OTHER_GROUP, 3, 2, 0)
    assert commit(journal) == [(SMALL_GROUP, 1)]
    assert journal.hard_state(OTHER_GROUP).term == 3
    assert journal.pending_records == 2
    assert commit(journal) == [(LARGE_GROUP, 2)]
    assert journal.pending_records == journal.statistics().pending_bytes == 0


def test_whoever_has_little_goes_before_once_and_not_for_ever() -> None:
    _disk, journal = new_journal()
    queue(journal, LARGE_GROUP, MUCH)
    queue(journal, SMALL_GROUP, LITTLE)
    assert commit(journal) == [(SMALL_GROUP, 1)]
    queue(journal, SMALL_GROUP, LITTLE)
    assert sorted(commit(journal)) == [(LARGE_GROUP, 1), (SMALL_GROUP, 2)]
    queue(journal, LARGE_GROUP, MUCH)
    queue(journal, SMALL_GROUP, LITTLE)
    assert commit(journal) == [(SMALL_GROUP, 3)]


def test_what_is_not_much_is_one_batch() -> None:
    _disk, journal = new_journal()
    queue(journal, LARGE_GROUP, MUCH[: len(MUCH) // 2])
    queue(journal, SMALL_GROUP, LITTLE)
    assert sorted(commit(journal)) == [(LARGE_GROUP, 1), (SMALL_GROUP, 1)]


def test_groups_that_all_have_much_are_one_batch() -> None:
    _disk, journal = new_journal()
    queue(journal, LARGE_GROUP, MUCH)
    queue(journal, SMALL_GROUP, MUCH)
    assert sorted(commit(journal)) == [(LARGE_GROUP, 1), (SMALL_GROUP, 1)]


def test_many_groups_that_all_have_little_are_one_batch() -> None:
    _disk, journal = new_journal()
    groups = range(1, 2 * LITTLE_SHARE)
    for group in groups:
        queue(journal, group, LITTLE)
    assert sorted(commit(journal)) == [(group, 1) for group in groups]


def test_what_waits_is_found_in_memory_until_it_is_written_and_afterwards() -> None:
    disk, journal = new_journal()
    queue(journal, LARGE_GROUP, MUCH)
    queue(journal, SMALL_GROUP, LITTLE)
    for _ in range(2):
        batch = journal.begin()
        assert batch is not None
        assert (batch.waiting == {LARGE_GROUP}) == (SMALL_GROUP in batch.stable)
        assert journal.entry(LARGE_GROUP, 1) == MUCH
        assert journal.entry(SMALL_GROUP, 1) == LITTLE
        batch.run()
        journal.end(batch)
    assert journal.entry(LARGE_GROUP, 1) == MUCH
    again, recovered = reopen(disk)
    assert recovered == [LITTLE, MUCH]
    assert again.read(LARGE_GROUP, 1) == MUCH


def test_what_waits_may_be_replaced_by_another_leader_s_entry() -> None:
    disk, journal = new_journal()
    queue(journal, LARGE_GROUP, MUCH)
    queue(journal, SMALL_GROUP, LITTLE)
    assert commit(journal) == [(SMALL_GROUP, 1)]
    journal.append(LARGE_GROUP, 2, 1, b"another leader's")
    assert commit(journal) == [(LARGE_GROUP, 1)]
    assert journal.entry(LARGE_GROUP, 1) == b"another leader's"
    again, _ = reopen(disk)
    assert again.read(LARGE_GROUP, 1) == b"another leader's"
    assert again.last_term(LARGE_GROUP) == 2


def test_what_a_rewrite_copies_stays_in_its_order() -> None:
    _disk, journal = new_journal()
    queue(journal, LARGE_GROUP, MUCH)
    queue(journal, SMALL_GROUP, LITTLE)
    journal._writer.append((7, SMALL_GROUP, 1, 1, LITTLE))
    batch = journal.begin()
    assert batch is not None
    assert not batch.waiting
    assert journal.pending_records == 0
