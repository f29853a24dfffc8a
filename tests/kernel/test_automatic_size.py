"""Topics that grow and shrink by themselves: in time, within bounds, and without flapping."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel.common.errors import KernelError
from kernel.common.ids import QUEUES_PER_TOPIC_MAX
from kernel.definitions.automatic_size import (
    CALM_MS,
    RETRY_MS,
    AutomaticSize,
    Decision,
    Use,
    What,
)
from kernel.definitions.sizes import CLASSES, LARGEST, QUEUE, Size, queues_for, size_of_class

LEAST, MOST = Size(1_000, 4e6), Size(400_000, 1.6e9)
MINUTE, HOUR, DAY = 60, 3_600, 86_400

Shape = Callable[[int], float]
"""Messages a second, by second."""


class Topic:
    """A topic that is resized at once, and what was decided."""

    def __init__(self, size: Size = LEAST) -> None:
        self.now_ms = 0
        self.machine = AutomaticSize(LEAST, MOST, size, queues_for(size))
        self.decided: list[tuple[int, Decision]] = []

    def run(self, shape: Iterable[float], busiest: float = 0.0) -> list[tuple[int, Decision]]:
        """(second, decision) of each that came, this time."""
        before = len(self.decided)
        for messages in shape:
            self.now_ms += 1_000
            found = self.machine.look(Use(messages, messages * 1_000, busiest), self.now_ms)
            if found is not None:
                self.decided.append((self.now_ms // 1_000, found))
                if found.what in (What.GROW, What.SHRINK):
                    self.machine.resized(found.size, queues_for(found.size), self.now_ms)
        return self.decided[before:]

    @property
    def kinds(self) -> list[What]:
        return [each.what for _, each in self.decided]


def seconds(count: int, shape: Shape) -> Iterable[float]:
    return map(shape, range(count))


def test_sustained_use_above_the_size_is_followed_within_ten_seconds() -> None:
    topic = Topic()
    topic.run([500.0] * MINUTE)
    found = topic.run([3_000.0] * MINUTE)
    assert len(found) == 1
    second, decision = found[0]
    assert second - MINUTE <= 10
    assert decision.what is What.GROW
    assert decision.size.messages == pytest.approx(4_500)
    assert "3.0 times its size" in decision.why


def test_a_burst_changes_nothing() -> None:
    topic = Topic()
    topic.run(seconds(HOUR, lambda second: 50_000 if second % 60 < 6 else 300))
    assert not topic.decided


def test_use_that_wavers_about_the_size_grows_it_once() -> None:
    random = Random(1)
    topic = Topic()
    topic.run(1_000 * random.uniform(0.8, 1.3) for _ in range(3 * HOUR))
    assert topic.kinds in ([], [What.GROW])


def test_it_shrinks_after_calm_and_not_below_what_is_used() -> None:
    topic = Topic(Size(100_000, 4e8))
    topic.run([20_000.0] * (HOUR - 60))
    assert not topic.decided
    found = topic.run([20_000.0] * HOUR)
    assert [each.what for _, each in found] == [What.SHRINK]
    assert topic.machine.size.messages == pytest.approx(30_000)
    assert not topic.run([20_000.0] * HOUR)


def test_a_flash_sale_has_it_grow_at_once_and_shrink_when_it_is_over() -> None:
    topic = Topic()
    topic.run([800.0] * HOUR)
    topic.run(seconds(5 * MINUTE, lambda second: min(60_000, 800 * 1.1**second)))
    grown = len(topic.decided)
    assert 1 <= grown <= 8  # it rises tenfold in 24 s
    assert topic.machine.size.messages >= 60_000
    topic.run([60_000.0] * 20 * MINUTE)
    assert len(topic.decided) == grown
    topic.run([800.0] * 5 * HOUR)
    assert topic.kinds[grown:] == [What.SHRINK]
    assert topic.machine.size.messages == pytest.approx(1_200)


def test_a_day_has_few_changes_and_the_next_ones_no_more() -> None:
    topic = Topic()
    random = Random(2)

    def day(second: int) -> float:
        wave = (1 - math.cos(2 * math.pi * second / DAY)) / 2
        return (500 + 20_000 * wave) * random.uniform(0.9, 1.1)

    by_day = []
    for _ in range(2):
        before = len(topic.decided)
        topic.run(seconds(DAY, day))
        by_day.append(len(topic.decided) - before)
    assert all(count <= 16 for count in by_day)
    shrinks = topic.kinds.count(What.SHRINK)
    assert 1 <= shrinks <= 8


@pytest.mark.parametrize("period", [5 * MINUTE, 50 * MINUTE, 3 * HOUR])
def test_a_saw_tooth_soon_has_its_size_kept(period: int) -> None:
    topic = Topic()
    topic.run(seconds(DAY // 2, lambda second: 20_000 * (second % period) / period))
    topic.run(seconds(DAY // 2, lambda second: 20_000 if second % period < period // 8 else 10))
    assert len(topic.decided) < 20
    before = len(topic.decided)
    topic.run(seconds(DAY // 2, lambda second: 20_000 if second % period < period // 8 else 10))
    assert len(topic.decided) - before <= 2


def test_a_hot_key_is_said_and_grows_nothing() -> None:
    size = Size(20_000, 8e7)
    topic = Topic(size)
    topic.run([30_000.0] * 10 * MINUTE, busiest=0.9)
    assert topic.kinds == [What.HOT_KEY]
    assert "90%" in topic.decided[0][1].why
    assert topic.machine.size == size


def test_what_hashing_does_to_queues_is_no_hot_key() -> None:
    topic = Topic(Size(20_000, 8e7))
    topic.run([24_000.0] * MINUTE, busiest=0.2)  # of 8 queues
    assert topic.kinds == [What.GROW]


def test_above_the_largest_size_it_says_so_once_an_hour() -> None:
    topic = Topic(MOST)
    topic.run([500_000.0] * (3 * HOUR))
    assert topic.kinds == [What.AT_MAX] * 3
    assert topic.machine.size == MOST


def test_a_resize_that_failed_is_tried_again_after_a_while() -> None:
    machine = AutomaticSize(LEAST, MOST, LEAST, 1)
    found = [
        (second, decision.what)
        for second in range(200)
        if (decision := machine.look(Use(5_000, 5e6), second * 1_000)) is not None
        and (machine.failed(second * 1_000) or True)
    ]
    assert [what for _, what in found] == [What.GROW] * len(found)
    gaps = [later - earlier for (earlier, _), (later, _) in pairwise(found)]
    assert gaps
    assert min(gaps) >= RETRY_MS // 1_000


def test_while_a_resize_goes_on_and_after_a_gap_nothing_is_decided() -> None:
    machine = AutomaticSize(LEAST, MOST, LEAST, 1)
    found = [machine.look(Use(5_000, 5e6), second * 1_000) for second in range(60)]
    assert sum(each is not None for each in found) == 1
    apart = AutomaticSize(LEAST, MOST, LEAST, 1)
    assert not any(apart.look(Use(5_000, 5e6), second * 4_000) for second in range(60))


pieces = st.lists(
    st.tuples(st.integers(1, 3 * HOUR), st.floats(0, 1e6), st.floats(0, 1)), max_size=6
)


@settings(max_examples=25, deadline=None)
@given(pieces, st.randoms(use_true_random=False))
def test_whatever_it_is_used_at_sizes_are_in_bounds_and_changes_are_few(
    shape: list[tuple[int, float, float]], random: Random
) -> None:
    topic = Topic()
    before = topic.machine.size
    for length, messages, busiest in shape:
        wavers = random.uniform(0, 0.5)
        some = (messages * random.uniform(1 - wavers, 1 + wavers) for _ in range(length // 30))
        topic.run(some, busiest)
    shrunk: int | None = None
    for second, decision in topic.decided:
        size = decision.size
        assert LEAST.messages <= size.messages <= MOST.messages
        assert LEAST.bytes <= size.bytes <= MOST.bytes
        if decision.what is What.GROW:
            assert size.messages > before.messages or size.bytes > before.bytes
        elif decision.what is What.SHRINK:
            assert size.messages < before.messages or size.bytes < before.bytes
            assert shrunk is None or second - shrunk >= CALM_MS // 1_000
            shrunk = second
        assert decision.why
        before = size


# --- Sizes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "queues"),
    [
        (Size(1), 1),
        (QUEUE, 1),
        (Size(QUEUE.messages + 1), 2),
        (Size(bytes=QUEUE.bytes * 3), 3),
        (Size(QUEUE.messages * 2, QUEUE.bytes * 5), 5),
        (LARGEST, QUEUES_PER_TOPIC_MAX),
    ],
)
def test_a_size_takes_so_many_queues(size: Size, queues: int) -> None:
    assert queues_for(size) == queues


@pytest.mark.parametrize(
    "size", [Size(), Size(-1, 5), Size(LARGEST.messages + 1), Size(math.inf), Size(math.nan)]
)
def test_a_size_that_no_topic_can_have_is_refused(size: Size) -> None:
    with pytest.raises(KernelError):
        queues_for(size)


def test_classes_have_sizes() -> None:
    assert [queues_for(size_of_class(name)) for name in CLASSES] == [1, 2, 20]
    with pytest.raises(KernelError, match="small, medium, large"):
        size_of_class("huge")
