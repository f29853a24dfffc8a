"""The budgets of a gateway's memory: who is dropped when one is used up, and who is not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from adapters.memory import (
    DROPPED_TOGETHER_MAX,
    FREED,
    YOUNG_MS,
    GatewayMemory,
    Pool,
    Share,
)

BYTES_MAX = 8_000


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


class Clients:
    """Connections by name."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.pool = Pool(self.clock, BYTES_MAX)
        self.shares: dict[str, Share] = {}
        self.dropped: list[str] = []

    def holds(self, name: str, size: int) -> None:
        """`address/number`."""
        if name not in self.shares:
            address = name.partition("/")[0]
            self.shares[name] = Share(address, lambda: self.dropped.append(name), None)
        self.pool.hold(self.shares[name], size)


@pytest.fixture
def clients() -> Clients:
    return Clients()


def test_nobody_is_dropped_within_the_budget(clients: Clients) -> None:
    for number in range(80):
        clients.holds(f"a/{number}", 100)
        clients.clock.now_ms += 1_000
    clients.pool.look()

    assert clients.dropped == []
    assert (clients.pool.bytes, clients.pool.holders) == (BYTES_MAX, 80)


def test_the_slowest_of_an_address_go_until_a_sixteenth_is_free(clients: Clients) -> None:
    for number in range(81):
        clients.holds(f"a/{number}", 100)
        clients.clock.now_ms += 1_000

    assert clients.dropped == [f"a/{number}" for number in range(6)]
    assert clients.pool.bytes == BYTES_MAX - BYTES_MAX // FREED


def test_many_small_ones_of_one_address_go_before_a_larger_one_of_another(
    clients: Clients,
) -> None:
    clients.holds("good/1", 1_000)
    for number in range(71):
        clients.holds(f"bad/{number}", 100)
    clients.clock.now_ms = YOUNG_MS
    clients.pool.look()

    assert clients.dropped
    assert all(each.startswith("bad/") for each in clients.dropped)


def test_who_is_large_and_quick_stays_and_who_holds_little_for_long_goes(clients: Clients) -> None:
    for number in range(40):
        clients.holds(f"slow-{number}/1", 100)
    clients.clock.now_ms = 60_000
    clients.holds("quick/1", 4_100)

    assert clients.dropped
    assert all(each.startswith("slow-") for each in clients.dropped)


def test_who_gets_on_is_not_slow(clients: Clients) -> None:
    for second in range(60):
        clients.clock.now_ms = second * 1_000
        clients.holds("bulk/1", 3_000 if second % 2 else 1_000)
        clients.holds("stuck/1", 4_000)
    clients.holds("new/1", 2_500)

    assert clients.dropped == ["stuck/1"]


def test_bursts_may_use_twice_the_budget_and_no_more(clients: Clients) -> None:
    most = 0
    for number in range(400):
        clients.holds(f"{number}/1", 100)
        most = max(most, clients.pool.bytes)
    assert clients.dropped
    assert BYTES_MAX < most <= 2 * BYTES_MAX + BYTES_MAX // 8

    clients.clock.now_ms = 2 * YOUNG_MS
    clients.pool.look()
    assert clients.pool.bytes <= BYTES_MAX


def test_what_is_measured_counts_as_it_is_now(clients: Clients) -> None:
    sizes = {"reads": 5_000, "stuck": 5_000}
    for name in sizes:
        drop, measure = partial(clients.dropped.append, name), partial(sizes.__getitem__, name)
        clients.pool.hold(Share(name, drop, measure), 4_000)
    sizes["reads"] = 0
    clients.clock.now_ms = 10_000
    clients.pool.look()
    assert (clients.dropped, clients.pool.bytes) == ([], 5_000)

    sizes["stuck"] = BYTES_MAX + 1
    clients.pool.look()
    assert (clients.dropped, clients.pool.bytes, clients.pool.holders) == (["stuck"], 0, 0)


def test_who_is_to_go_is_found_without_looking_at_all_the_others() -> None:
    clock, asked, dropped = Clock(), [0], [0]

    def measure() -> int:
        asked[0] += 1
        return 10

    def drop() -> None:
        dropped[0] += 1

    pool = Pool(clock, 100_000)
    for number in range(40_000):
        clock.now_ms += 1
        pool.hold(Share(f"{number % 20}", drop, measure), 10)

    assert dropped[0] > 30_000 - 1_000
    assert asked[0] < 3 * dropped[0]


def test_a_look_now_and_then_is_enough() -> None:
    clock = Clock()
    memory = GatewayMemory(clock, BYTES_MAX, BYTES_MAX)
    asked: list[int] = []

    def measure() -> int:
        asked.append(clock.now_ms)
        return 10

    memory.output.hold(Share("a", lambda: None, measure), 10)
    for clock.now_ms in range(1_000, 2_000, 100):
        memory.look()
    assert len(asked) == 2


def test_what_is_noted_from_inside_of_something_drops_nobody_there(clients: Clients) -> None:
    later: list[Callable[[], None]] = []
    clients.holds("a/1", BYTES_MAX)
    clients.clock.now_ms = 2 * YOUNG_MS
    share = Share("b", lambda: clients.dropped.append("b/1"), None)
    for size in (10, 20, 30):
        clients.pool.note(share, size, later.append)
    assert clients.dropped == []
    assert len(later) == 1

    later.pop()()
    assert clients.dropped == ["a/1"]
    clients.pool.note(share, 40, later.append)
    assert later == []


def test_very_many_go_in_turns_and_what_is_above_twice_the_budget_at_once(clients: Clients) -> None:
    soon: list[Callable[[], None]] = []
    count = 2 * BYTES_MAX
    for number in range(count):
        clients.holds(f"a/{number}", 1)
    assert clients.dropped == []  # all of them are young
    clients.clock.now_ms += YOUNG_MS
    clients.shares["b/0"] = Share("b", lambda: clients.dropped.append("b/0"), None)
    clients.pool.note(clients.shares["b/0"], 1_000, soon.append)
    most = 0
    while soon:
        before = len(clients.dropped)
        soon.pop()()
        if most:
            assert len(clients.dropped) - before <= DROPPED_TOGETHER_MAX
        most = max(most, len(clients.dropped) - before)
        assert clients.pool.bytes <= 2 * BYTES_MAX
    assert most == 1_000  # as many as were above twice the budget
    assert clients.pool.bytes == BYTES_MAX - BYTES_MAX // FREED
    assert "b/0" not in clients.dropped
