"""Which queue has the keys of each hash slot, and who gets them at a resize (ADR 31)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel.api.model import GroupOptions, QueueRef, TopicInfo, TopicOptions
from kernel.common import ring as rings
from kernel.common.ids import QUEUES_PER_TOPIC_MAX, QueueId, RaftGroup, TopicId, queue_id

FIRST = st.integers(1, 12)
STEPS = st.lists(st.integers(1, 64), max_size=8)


def topic_of(numbers, ring: bytes = b"") -> TopicInfo:
    refs = tuple(QueueRef(queue_id(TopicId(7), number), RaftGroup(1)) for number in numbers)
    return TopicInfo(
        "t", "n", TopicId(7), 1, TopicOptions(), refs, {"default": GroupOptions()}, ring
    )


def sizes(ring: bytes) -> dict[int, int]:
    return {number: len(slots) for number, slots in rings.hash_slots(ring).items()}


@given(FIRST, st.integers(0, 1 << 64))
def test_a_topic_that_nobody_has_resized_is_where_it_always_was(queues: int, key: int) -> None:
    without = topic_of(range(queues))
    with_ring = topic_of(range(queues), rings.first_ring(queues))
    assert without.queue_of(key) == with_ring.queue_of(key) == without.queues[key % queues]
    assert without.writable == with_ring.writable == without.queues


@settings(max_examples=150, deadline=None)
@given(FIRST, STEPS)
def test_a_resize_moves_whole_queues_and_as_few_as_it_can(first: int, steps: list[int]) -> None:
    ring = rings.first_ring(first)
    for queues in steps:
        before, known = ring, sizes(ring)
        ring = rings.resized(before, queues, rings.free_numbers(frozenset(before)))
        assert len(ring) == len(before)
        after = sizes(ring)
        assert len(after) == queues
        gone, come = rings.sealed(before, ring), rings.predecessors(before, ring)
        # Whoever stays has what it had, to the slot.
        kept = known.keys() - gone
        assert all(
            rings.hash_slots(ring)[number] == rings.hash_slots(before)[number] for number in kept
        )
        assert len(known) - len(gone) + len(come) == queues
        assert set().union(*come.values()) == gone
        if queues > len(known):
            # One sealed queue a new one, at most; what is split has one predecessor each.
            assert len(gone) <= queues - len(known)
            assert all(len(each) == 1 for each in come.values())
        elif queues < len(known):
            assert len(gone) <= 2 * (len(known) - queues)
            assert all(len(each) > 1 for each in come.values())
        else:
            assert ring == before
        assert max(after.values()) <= 2 * min(after.values()) + 1


@given(FIRST, st.integers(1, 5))
def test_a_multiple_is_even(first: int, times: int) -> None:
    ring = rings.first_ring(first)
    grown = rings.resized(ring, first * times, range(QUEUES_PER_TOPIC_MAX))
    even = sizes(grown).values()
    assert max(even) - min(even) <= 1


def test_one_queue_grows_to_sixteen_and_shrinks_to_four() -> None:
    one = rings.first_ring(1)
    sixteen = rings.resized(one, 16, range(1, 256))
    assert set(sixteen) == set(range(1, 17))
    assert set(sizes(sixteen).values()) == {4}
    assert rings.predecessors(one, sixteen) == {each: frozenset({0}) for each in range(1, 17)}
    four = rings.resized(sixteen, 4, rings.free_numbers(set(sixteen) | {0}))
    assert sizes(four) == {17: 16, 18: 16, 19: 16, 20: 16}
    assert {len(each) for each in rings.predecessors(sixteen, four).values()} == {4}


def test_queues_of_two_raft_groups_never_become_one() -> None:
    ring = rings.first_ring(6)
    places = {number: number % 2 for number in range(6)}
    after = rings.resized(ring, 2, range(6, 256), places)
    for old in rings.predecessors(ring, after).values():
        assert len({places[each] for each in old}) == 1
    assert sizes(after) == {6: 192, 7: 192}
    with pytest.raises(ValueError, match="in 2 Raft groups"):
        rings.resized(ring, 1, range(6, 256), places)


def test_a_queue_moves_with_all_its_keys() -> None:
    ring = rings.first_ring(3)
    after = rings.moved(ring, 1, [1, 2, 5, 6])
    assert rings.sealed(ring, after) == {1}
    assert rings.predecessors(ring, after) == {5: frozenset({1})}


def test_what_cannot_be_is_refused() -> None:
    ring = rings.first_ring(1)
    with pytest.raises(ValueError, match="1 to 64 queues, not 65"):
        rings.resized(ring, 65, range(256))
    with pytest.raises(ValueError, match="not 0"):
        rings.resized(ring, 0, range(256))
    wide = rings.first_ring(256)
    with pytest.raises(ValueError, match="1 to 256 queues, not 257"):
        rings.resized(wide, 257, range(256))
    with pytest.raises(ValueError, match="64 queues need a number, and 3 are free"):
        rings.resized(ring, 64, range(4))
    with pytest.raises(ValueError, match="1 queues need a number, and 0 are free"):
        rings.moved(wide, 0, range(256))


@given(FIRST, st.integers(2, 40), st.integers(0, 1 << 64))
def test_keys_follow_the_ring_whatever_queues_are_still_there(
    first: int, queues: int, key: int
) -> None:
    before = rings.first_ring(first)
    after = rings.resized(before, queues, rings.free_numbers(set(before)))
    number = after[key % len(after)]
    expected = QueueId(queue_id(TopicId(7), number))
    with_sealed = topic_of(sorted({*before, *after}), after)
    assert with_sealed.queue_of(key).id == expected
    retired = topic_of(sorted(set(after)), after)
    assert retired.queue_of(key).id == expected
    assert with_sealed.writable == retired.writable == retired.queues
    alone = with_sealed.only(with_sealed.queues[0])
    assert alone.queue_of(key) == with_sealed.queues[0]
