"""`Ready` against a naive set of messages: what is handed out next, and how many are ready."""

from __future__ import annotations

import random
from array import array

import pytest

from kernel.broker.delivery.ready import Ready
from kernel.broker.group_state.progress import GroupProgress
from kernel.broker.index.features import Feature
from kernel.broker.index.runs import RunIndex


class Twin:
    """A `Ready` and what it should say, driven together."""

    def __init__(self, levels: int, seed: int) -> None:
        self.chance = random.Random(seed)
        self.index, self.progress = RunIndex(), GroupProgress()
        self.ready = Ready(self.index, self.progress, levels)
        self.levels = levels
        self.level_of: list[int] = []
        self.waiting: set[int] = set()
        """Ready."""
        self.returned: set[int] = set()
        """Of these, those that were handed out before."""
        self.held: set[int] = set()
        self.withheld: set[int] = set()
        self.entry = 0

    def append(self) -> None:
        self.entry += 1
        count = self.chance.randint(1, 20)
        levels = [self.chance.randrange(self.levels) for _ in range(count)]
        where = self.entry, 0, count, 1
        if any(levels):
            first = self.index.append_with(*where, {Feature.PRIORITY: array("B", levels)})
        else:
            first = self.index.append(*where)
        self.level_of += levels
        self.waiting.update(range(first, first + count))
        for at in range(first, first + count):
            if self.chance.random() < 0.1:
                self.ready.withhold(at)
                self.waiting.discard(at)
                self.withheld.add(at)

    def take(self) -> None:
        level = self.chance.randrange(self.levels)
        limit = self.chance.choice((self.index.tail, self.index.tail, self.index.tail // 2))
        count = self.chance.randint(1, 10)
        mine = [at for at in self.waiting if self.level_of[at] == level]
        back = sorted(at for at in mine if at in self.returned)
        fresh = sorted(at for at in mine if at not in self.returned and at < limit)
        expected = back or fresh
        taken = self.ready.take(level, limit, count)
        if taken is None:
            assert not expected
            return
        run, offsets = taken
        assert list(offsets) == expected[: len(offsets)], "not the next ones"
        assert 1 <= len(offsets) <= count
        assert run.first <= offsets[0]
        assert offsets[-1] < run.end
        self.held.update(offsets)
        self.waiting.difference_update(offsets)
        self.returned.difference_update(offsets)

    def some_held(self) -> list[int]:
        held = sorted(self.held)
        return self.chance.sample(held, min(len(held), self.chance.randint(0, 8)))

    def give_back(self) -> None:
        some = self.some_held()
        self.ready.give_back(some)
        self.held.difference_update(some)
        self.waiting.update(some)
        self.returned.update(some)

    def ack(self) -> None:
        for at in self.some_held():
            self.progress.ack(at, at + 1)
            self.held.discard(at)
        self.index.drop_below(self.progress.floor)

    def admit(self) -> None:
        for at in [at for at in self.withheld if self.chance.random() < 0.3]:
            assert self.ready.admit(at)
            assert not self.ready.admit(at)
            self.withheld.discard(at)
            self.waiting.add(at)
            if at < self.ready.beyond(self.level_of[at]):
                self.returned.add(at)

    def forget(self) -> None:
        if self.returned:
            at = min(self.returned)
            self.progress.ack(at, at + 1)
            self.ready.forget(at)
            self.returned.discard(at)
            self.waiting.discard(at)

    def purge(self) -> None:
        """Everything but what is held."""
        if self.chance.random() < 0.9:
            return
        start = self.progress.floor
        for stop in (*sorted(self.held), self.index.tail):
            self.progress.ack(start, stop)
            start = stop + 1
        self.ready.purged()
        self.waiting.clear()
        self.returned.clear()
        self.withheld.clear()

    def skip(self) -> None:
        """The message in front of a level goes to nobody."""
        level = self.chance.randrange(self.levels)
        mine = [at for at in self.waiting if self.level_of[at] == level]
        back = sorted(at for at in mine if at in self.returned)
        front = self.ready.peek(level)
        if front is None:
            assert not mine
            return
        run, at = front
        assert at == (back or sorted(mine))[0]
        assert run.first <= at < run.end
        self.ready.skip(level)
        self.held.add(at)
        self.waiting.discard(at)
        self.returned.discard(at)

    def check(self) -> None:
        assert self.ready.count == len(self.waiting)
        assert self.ready.withheld_count == len(self.withheld)
        assert self.ready.may_have() or not self.waiting


@pytest.mark.parametrize("levels", [1, 3])
@pytest.mark.parametrize("seed", range(12))
def test_what_is_handed_out_is_what_a_set_would_say(levels: int, seed: int) -> None:
    twin = Twin(levels, seed)
    actions = [
        twin.append,
        twin.take,
        twin.take,
        twin.take,
        twin.give_back,
        twin.ack,
        twin.admit,
        twin.forget,
        twin.skip,
        twin.purge,
    ]
    for _ in range(250):
        twin.chance.choice(actions)()
        twin.check()


@pytest.mark.parametrize("levels", [1, 3])
def test_a_new_leader_begins_with_what_is_not_acked_and_not_kept(levels: int) -> None:
    index, progress = RunIndex(), GroupProgress()
    index.append(1, 0, 600, 1)
    progress.ack(0, 100)
    progress.ack(300, 400)
    progress.lease(150, 7, 1_000)
    progress.lease(151, 0, 1_000)
    ready = Ready(index, progress, levels)
    assert ready.count == 600 - 200 - 2
    taken = []
    while (got := ready.take(0, 600, 50)) is not None:
        taken += got[1]
    assert taken == [
        at for at in range(600) if not (at < 100 or 300 <= at < 400 or at in (150, 151))
    ]
    assert ready.count == 0


def test_a_limit_in_the_middle_of_a_run_is_kept() -> None:
    index, progress = RunIndex(), GroupProgress()
    index.append(1, 0, 10, 1)
    ready = Ready(index, progress, 1)
    taken = ready.take(0, 4, 10)
    assert taken is not None
    assert list(taken[1]) == [0, 1, 2, 3]
    assert ready.take(0, 4, 10) is None
    assert (ready.count, ready.beyond(0)) == (6, 4)
