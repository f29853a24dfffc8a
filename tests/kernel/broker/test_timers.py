"""Due times: what no longer holds gives its place back long before it would have been due."""

from __future__ import annotations

import random

from kernel.broker.delivery.due_times import SLACK, SWEEP_ENTRIES, Buckets

HALF_A_DAY_MS = 12 * 3_600_000


class Held:
    """Buckets, and which offset holds until when."""

    def __init__(self) -> None:
        self.buckets = Buckets()
        self.until: dict[int, int] = {}

    def add(self, offset: int, due_ms: int) -> None:
        self.until[offset] = due_ms
        self.buckets.add(offset, due_ms)

    def sweep(self) -> None:
        self.buckets.sweep(len(self.until), self.holds)

    def holds(self, offset: int, bucket: int) -> bool:
        due_ms = self.until.get(offset)
        return due_ms is not None and self.buckets.bucket_of(due_ms) == bucket


def test_deadlines_that_were_settled_early_do_not_add_up() -> None:
    held = Held()
    most = 0
    for now_ms in range(100_000):
        held.add(now_ms, now_ms + HALF_A_DAY_MS)
        held.until.pop(now_ms - 10, None)
        held.sweep()
        most = max(most, len(held.buckets))

    assert most <= 2 * 10 + 2 * SLACK + SWEEP_ENTRIES


def test_a_deadline_that_is_moved_again_and_again_is_kept_once() -> None:
    held = Held()
    for number in range(50_000):
        held.add(7, HALF_A_DAY_MS + number // 1_000)
        held.sweep()

    assert len(held.buckets) <= 2 + 2 * SLACK + SWEEP_ENTRIES
    assert set(held.buckets.due(2 * HALF_A_DAY_MS)) == {7}
    assert len(held.buckets) == 0


def test_what_holds_is_due_in_time_however_much_is_swept() -> None:
    chance = random.Random(14)
    held = Held()
    due: dict[int, int] = {}
    for now_ms in range(20_000):
        held.add(now_ms, now_ms + chance.choice((5, 500, 50_000, HALF_A_DAY_MS)))
        if held.until and chance.random() < 0.9:
            held.until.pop(next(iter(held.until)))
        elif held.until:
            offset = next(iter(held.until))
            held.add(offset, now_ms + chance.randrange(HALF_A_DAY_MS))
        held.sweep()
        for offset in held.buckets.due(now_ms):
            if offset in held.until and held.until[offset] <= now_ms:
                due[offset] = held.until.pop(offset)
        next_ms = held.buckets.next_ms()
        assert not held.until or next_ms is not None
        assert next_ms is None or next_ms <= min(held.until.values(), default=next_ms) + 50

    left = dict(held.until)
    assert set(left) <= set(held.buckets.due(2 * HALF_A_DAY_MS))
    assert len(held.buckets) == 0
    assert held.buckets.next_ms() is None
    assert due


def test_few_entries_are_never_swept() -> None:
    held = Held()
    for offset in range(SLACK):
        held.add(offset, offset)
    held.until.clear()
    held.sweep()

    assert len(held.buckets) == SLACK
