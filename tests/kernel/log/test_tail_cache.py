"""Bodies in memory: they leave by size, and by age."""

from __future__ import annotations

from kernel.log.reading.tail_cache import AGES_MAX, ENTRY_OVERHEAD_BYTES, TailCache

BODY = b"x" * 100
EACH = len(BODY) + ENTRY_OVERHEAD_BYTES


def test_what_is_old_leaves_and_what_came_since_stays() -> None:
    cache = TailCache(1_000 * EACH)
    cache.add({1: BODY, 2: BODY})
    cache.age()
    cache.add({3: BODY})
    for _ in range(AGES_MAX - 1):
        cache.age()
    assert [cache.get(key) for key in (1, 2, 3)] == [BODY] * 3

    cache.age()
    assert [cache.get(key) for key in (1, 2, 3)] == [None, None, BODY]
    assert cache.bytes_held == EACH
    cache.age()
    assert len(cache) == cache.bytes_held == 0


def test_age_and_size_together_drop_each_body_once() -> None:
    cache = TailCache(50 * EACH)
    for key in range(1, 5_000):
        cache.add({key: BODY})
        if key % 7 == 0:
            cache.age()
        if key % 3 == 0:
            cache.discard(key - 1)
        assert cache.bytes_held == len(cache) * EACH <= 50 * EACH
        assert cache.get(key) == BODY
    for _ in range(AGES_MAX + 1):
        cache.age()
    assert cache.bytes_held == len(cache) == 0


def test_marks_of_time_do_not_add_up() -> None:
    cache = TailCache(50 * EACH)
    for _ in range(10 * AGES_MAX):
        cache.age()
    cache.add({1: BODY})
    for _ in range(AGES_MAX):
        cache.age()
    assert cache.get(1) == BODY
    cache.age()
    assert cache.get(1) is None
