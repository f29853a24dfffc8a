"""`ordering.Keys` against a model that is written as its rule reads."""

from __future__ import annotations

import random
from functools import partial

from kernel.broker.delivery.ordering_keys import SPENT_MAX, STALE_MAX, DispatchRound, Keys

KEYS = 4


class Model:
    """What waits, what is leased and what somebody has got before, by offset."""

    def __init__(self) -> None:
        self.key: dict[int, int] = {}
        self.waiting: set[int] = set()
        self.leased: set[int] = set()
        self.received: set[int] = set()

    def free(self) -> set[int]:
        """Messages that may be taken first."""
        found: set[int] = set()
        for key in range(1, KEYS + 1):
            waiting = [each for each in self.waiting if self.key[each] == key]
            leased = [each for each in self.leased if self.key[each] == key]
            if waiting:
                first = min(waiting)
                if not leased or (first in self.received and first < min(leased)):
                    found.add(first)
        return found


def test_keys_do_as_the_rule_says_whatever_happens() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        model = Model()
        keys = Keys(model.received.__contains__)
        tail = 0
        for _ in range(400):
            what = rng.random()
            if what < 0.4:
                key = rng.randint(1, KEYS)
                model.key[tail] = key
                model.waiting.add(tail)
                keys.wait(key, tail)
                tail += 1
            elif what < 0.6:
                free = model.free()
                taken = keys.take(DispatchRound(), rng.randint(1, 3), lambda _: 1 << 60)
                assert bool(taken) == bool(free)
                if taken:
                    assert taken[0] == min(free)
                    assert taken == sorted(taken)
                    assert len({model.key[each] for each in taken}) == 1
                    assert not taken[1:] or set(taken) <= model.waiting
                    model.waiting.difference_update(taken)
                    model.leased.update(taken)
            elif what < 0.8 and model.leased:
                offset = rng.choice(sorted(model.leased))
                model.leased.discard(offset)
                freed = keys.free(offset)
                if freed:
                    keys.opened(freed)
                if rng.random() < 0.5:
                    if rng.random() < 0.8:
                        model.received.add(offset)
                    model.waiting.add(offset)
                    keys.wait(model.key[offset], offset)
            elif what < 0.84 and model.waiting:
                offset = rng.choice(sorted(model.waiting))
                model.waiting.discard(offset)
                # Half of them are gone from the index, where their keys stand.
                by_key = partial(keys.forget, model.key[offset])
                assert (by_key if offset % 2 else keys.forget_gone)(offset)
            elif what < 0.86:
                gone = {each for each in model.key if rng.random() < 0.2}
                model.waiting -= gone
                model.leased -= gone
                for key in keys.purge(gone.__contains__):
                    keys.opened(key)
            elif what < 0.9:
                given = keys.give_up_all()
                assert model.free() <= set(given)
                assert len(given) == len(set(given))
                model.waiting.difference_update(given)
                assert not model.free()
                for offset in given:
                    model.waiting.add(offset)
                    keys.wait(model.key[offset], offset)
            assert keys.waiting_count == len(model.waiting)
            blocked = {model.key[each] for each in model.leased}
            assert keys.open_count == sum(model.key[each] not in blocked for each in model.waiting)
            assert keys.has_free or not model.free()


def test_a_message_that_comes_and_goes_leaves_nothing_behind() -> None:
    """Given back at once, for ever: the heap and the key's array stay small."""
    keys = Keys(lambda _: True)
    keys.wait(1, 5)
    for offset in range(4):
        keys.wait(1, offset)
        for _ in range(2 * STALE_MAX):
            (taken,) = keys.take(DispatchRound(), 1, lambda _: 1 << 60)
            keys.opened(keys.free(taken))
            keys.wait(1, taken)
        assert keys.take(DispatchRound(), 1, lambda _: 1 << 60) == [offset]
        keys.opened(keys.free(offset))
    assert len(keys._heap) <= STALE_MAX + 2


def test_a_long_backlog_of_one_key_gives_its_places_back() -> None:
    keys = Keys(lambda _: False)
    for offset in range(10 * SPENT_MAX):
        keys.wait(1, offset)
    for start in range(0, 9 * SPENT_MAX, 8):
        taken = keys.take(DispatchRound(), 8, lambda _: 1 << 60)
        assert taken == list(range(start, start + 8))
        for key in [keys.free(offset) for offset in taken]:
            keys.opened(key)
    assert len(keys._keys[1]._ahead) <= 3 * SPENT_MAX


def test_a_turn_goes_on_with_its_key_and_another_consumer_of_the_turn_does_not() -> None:
    keys = Keys(lambda _: False)
    for offset in range(6):
        keys.wait(1 + offset % 2, offset)
    first, second = DispatchRound(), DispatchRound()
    assert keys.take(first, 1, lambda _: 1 << 60) == [0]
    assert keys.take(second, 5, lambda _: 1 << 60) == [1, 3, 5]
    assert keys.take(first, 5, lambda _: 1 << 60) == [2, 4]
    assert keys.take(second, 5, lambda _: 1 << 60) == []
