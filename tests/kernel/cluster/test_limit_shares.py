"""Limits of a cluster: gateways report each second, and together use what is allowed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.reporting.limit_reports import ALONE_REPORTS, LimitReports
from kernel.cluster.gateway_balance import Gateways
from kernel.cluster.limit_shares import LimitTable, divided
from kernel.cluster.messages import HeartbeatReport, LimitUse
from kernel.quotas.accounts import Quotas
from kernel.quotas.rates import Rates, Scope, Whose

TENANT = Whose(Scope.TENANT, "acme", "")
LIMIT = 1_000
STEP_MS = 10
SECONDS = 23

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
        self.quotas = Quotas({TENANT: Rates(LIMIT)})
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
    quotas = Quotas({Whose(Scope.LISTENER, "", "amqp.tcp"): Rates(10)})
    quotas.account("acme", "bob", "amqp.tcp").published(0, 10, 0)
    assert LimitReports(quotas, Clock()).uses() == []
