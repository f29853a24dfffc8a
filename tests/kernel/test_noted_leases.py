"""Leases with a note, as whoever wins an election finds them."""

from __future__ import annotations

import pytest

from kernel.api.message import HEADER_BYTES
from kernel.broker.log_commands import commands
from kernel.common.ids import QueueId
from kernel.log.format import entry as entries
from kernel.raft.messages import EMPTY, NORMAL, Entry
from kernel.store.replicas import noted_leases as module
from kernel.store.replicas.noted_leases import SINCE_MS, NotedLease, noted_leases

QUEUE = QueueId(1 << 40)
NOW_MS = 1_000_000


def entry(index: int, note: int, time_ms: int = NOW_MS) -> Entry:
    body = commands.encode_lease(QUEUE, "g", time_ms + 30_000, [(index, 2)], 10, 1)
    own = ((int(commands.Command.LEASE), commands.VERSION, body),)
    batches = [
        entries.encode_batch(entries.EntryBatch(5, 1, 77, ())),
        entries.encode_batch(entries.EntryBatch(0, 0, note, own, 7)),
    ]
    return Entry(1, index, NORMAL, entries.build(time_ms, batches, (), ()))


def found(*log: Entry) -> list[tuple[int, int]]:
    """(note, lease) of each."""
    return [(each.note, each.lease) for each in noted_leases(reversed(log), NOW_MS)]


def test_those_with_a_note_are_found_the_newest_first() -> None:
    log = [entry(3, 8), Entry(2, 4, EMPTY, b""), entry(5, 0), entry(6, 9)]
    assert found(*log) == [(9, 6), (8, 3)]
    assert noted_leases([log[0]], NOW_MS) == [NotedLease(8, QUEUE, "g", ((3, 2),), 3, 7, 10)]


def test_the_sizes_of_what_was_leased_add_up() -> None:
    (lease,) = noted_leases([entry(3, 8)], NOW_MS)
    assert sum(lease.slot_sizes([3, 4]).values()) == 10 + 2 * HEADER_BYTES


def test_nobody_looks_behind_an_entry_that_is_too_old() -> None:
    old = NOW_MS - SINCE_MS - 1
    assert found(entry(3, 7), entry(4, 8, old), entry(5, 9)) == [(9, 5)]


def test_the_look_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    log = [entry(3, 7), entry(4, 8), entry(5, 9)]
    monkeypatch.setattr(module, "ENTRIES_MAX", 2)
    assert found(*log) == [(9, 5), (8, 4)]
    monkeypatch.setattr(module, "BYTES_MAX", len(log[2].body))
    assert found(*log) == [(9, 5)]
