"""Limits of a cluster: gateways report each second, and together use what is allowed."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from gateway.reporting.limit_reports import ALONE_REPORTS, LimitReports
from kernel.cluster.gateway_balance import Gateways
from kernel.cluster.limit_shares import LimitTable, divided
from kernel.cluster.messages import (
    ClientMove,
    HeartbeatReport,
    LimitShare,
    LimitUse,
    Orders,
    Staying,
    Task,
)
from kernel.quotas.accounts import Quotas
from kernel.quotas.limits import Entity, LimitSet, Scope

TENANT = Entity(Scope.TENANT, "acme", "")
LIMIT = 1_000
STEP_MS = 10
SECONDS = 23


class OldReport(msgspec.Struct, frozen=True, array_like=True):
    """What a manager of before there were limits reads of a report."""

    name: str
    process: str
    label: str
    version: str
    listeners: dict[str, str]
    clients: dict[str, int]
    traffic: int
    moved: int
    tasks: list[Task]
    settings: str = ""
    staying: list[Staying] = []


class OldOrders(msgspec.Struct, frozen=True, array_like=True):
    """What such a gateway reads of an answer."""

    draining: bool
    moves: list[ClientMove]
    others: list[str]
    unlike: list[str] = []
    unlike_count: int = 0


Load = Callable[[int], float]
"""Messages a second that clients would send, by second."""


class Clock:
    def __init__(self) -> None:
        self.now = 1_000

    def monotonic_ms(self) -> int:
        return self.now

    def wall_ms(self) -> int:
        return self.now


class Gateway:
    """One gateway with clients that send until they are not read from."""

    def __init__(self, name: str, load: Load, clock: Clock) -> None:
        self.name = name
        self.load = load
        self.quotas = Quotas({TENANT: LimitSet(LIMIT)})
        self.reports = LimitReports(self.quotas, clock)
        self.account = self.quotas.account("acme", "bob", "amqp.tcp")
        self.clock = clock
        self.waiting = 0.0

    def step(self, second: int) -> int:
        """What it takes in a step: what is waiting may wait on, a second's worth of it."""
        load = self.load(second)
        self.waiting = min(self.waiting + load * STEP_MS / 1_000, load)
        now, taken = self.clock.now, 0
        while self.waiting >= 1 and not self.account.delay_ms(now):
            batch = int(min(self.waiting, 5))
            self.account.published(now, batch, 0)
            self.waiting -= batch
            taken += batch
        return taken

    def report(self, manager: Gateways) -> None:
        told = HeartbeatReport(
            self.name, self.name, "", "", {}, {}, 0, 0, [], limits=self.reports.uses()
        )
        self.reports.granted(manager.take_report(told, (), self.clock.now))


def taken_by_second(loads: list[Load]) -> list[int]:
    """What all of them together take, each reporting at its own time of the second."""
    clock, manager = Clock(), Gateways(0, 0)
    gateways = [Gateway(f"gateway-{number}", load, clock) for number, load in enumerate(loads)]
    found = [0] * SECONDS
    for step in range(SECONDS * 1_000 // STEP_MS):
        second, at_ms = divmod(step * STEP_MS, 1_000)
        for number, each in enumerate(gateways):
            found[second] += each.step(second)
            if at_ms == 1_000 * number // len(gateways) // STEP_MS * STEP_MS:
                each.report(manager)
        clock.now += STEP_MS
    return found


LOADS: dict[str, list[Load]] = {
    "one of them": [lambda _: 5_000, lambda _: 0],
    "all alike": [lambda _: 5_000, lambda _: 5_000, lambda _: 5_000],
    "one with much and two with little": [lambda _: 5_000, lambda _: 50, lambda _: 100],
    "each with a part": [lambda _: 400, lambda _: 400, lambda _: 400],
    "twenty": [lambda _: 200] * 20,
    "one that comes and goes": [lambda _: 5_000, lambda second: 5_000 * (second % 10 < 5)],
}


@pytest.mark.parametrize("name", LOADS)
def test_together_they_use_what_is_allowed_within_a_tenth_after_three_seconds(name: str) -> None:
    taken = taken_by_second(LOADS[name])
    for begin in (3, 8, SECONDS - 10):
        assert LIMIT * 9 <= sum(taken[begin : begin + 10]) <= LIMIT * 11, taken


def test_a_little_is_let_through_everywhere() -> None:
    assert sum(taken_by_second([lambda _: 100, lambda _: 100])[3:13]) == pytest.approx(
        2_000, abs=20
    )


def use(gateway_wants: float, held: int = 0) -> LimitUse:
    return LimitUse("tenant", "acme", "", "published_messages", gateway_wants, held)


def test_who_wants_little_gets_it_and_the_others_share_evenly() -> None:
    division = divided([use(1.0), use(1.0), use(0.2)], 0)
    assert division.level == pytest.approx(0.4)
    assert division.more == 0
    spare = divided([use(0.3), use(0.1)], 0)
    assert (spare.level, spare.more) == (1.0, pytest.approx(0.3))


def test_each_hears_how_many_there_are_elsewhere() -> None:
    table = LimitTable()
    table.take("first", [use(0, held=3)], 0)
    assert table.take("second", [use(0, held=4)], 1_000)[0].elsewhere == 3
    table.forget("second")
    assert table.take("first", [use(0, held=3)], 2_000)[0].elsewhere == 0


def test_a_gateway_that_hears_nothing_takes_its_even_part() -> None:
    clock, manager = Clock(), Gateways(0, 0)
    first, second = (Gateway(name, lambda _: 0, clock) for name in ("first", "second"))
    first.account.published(clock.now, 5_000, 0)
    second.report(manager)
    first.report(manager)
    assert next(first.quotas.used()).share == 1.0
    for _ in range(ALONE_REPORTS):
        first.reports.missed()
    assert next(first.quotas.used()).share == 0.5


def test_what_is_told_of_a_limit_that_nobody_has_met_is_nothing() -> None:
    reports = Gateway("first", lambda _: 0, Clock()).reports
    assert reports.uses() == []
    quotas = Quotas({Entity(Scope.LISTENER, "", "amqp.tcp"): LimitSet(10)})
    quotas.account("acme", "bob", "amqp.tcp").published(0, 10, 0)
    assert LimitReports(quotas, Clock()).uses() == []


def test_builds_of_before_there_were_limits_read_reports_and_orders_and_are_read() -> None:
    encode, decode = msgspec.msgpack.encode, msgspec.msgpack.decode
    use = LimitUse("tenant", "acme", "", "stored_bytes", 0.5, 7)
    plain = ("a", "p", "host", "1", {"mqtt.tcp": "host:1"}, {"mqtt": 2}, 3, 4, [])
    report = HeartbeatReport(*plain, settings="word", limits=[use])
    assert decode(encode(report), type=OldReport) == OldReport(*plain, "word")
    assert decode(encode(OldReport(*plain)), type=HeartbeatReport) == HeartbeatReport(*plain)
    share = LimitShare("tenant", "acme", "", "stored_bytes", 1.0, 9)
    orders = Orders(draining=False, moves=[], others=["q"], shares=[share], gateways=2)
    old = OldOrders(draining=False, moves=[], others=["q"])
    assert decode(encode(orders), type=OldOrders) == old
    assert decode(encode(old), type=Orders) == Orders(draining=False, moves=[], others=["q"])


def test_what_is_stored_is_told_with_the_shares_and_unknown_kinds_are_passed_over() -> None:
    quotas = Quotas({TENANT: LimitSet(stored_bytes=100, stored_messages=10)})
    reports = LimitReports(quotas, Clock())
    assert [each.kind for each in reports.uses()] == ["stored_messages", "stored_bytes"]
    shares = [
        LimitShare("tenant", "acme", "", "stored_messages", 1.0, 4),
        LimitShare("tenant", "acme", "", "stored_bytes", 1.0, 50),
        LimitShare("tenant", "acme", "", "of_a_newer_build", 1.0, 1),
    ]
    reports.granted(Orders(draining=False, moves=[], others=[], shares=shares, gateways=1))
    assert quotas.stored == {TENANT: (4, 50)}
    used = {each.kind.value: each.amount for each in quotas.used()}
    assert used == {"stored_messages": 4, "stored_bytes": 50}
    assert {each.kind: each.wanted for each in reports.uses()} == {
        "stored_messages": 0.4,
        "stored_bytes": 0.5,
    }
