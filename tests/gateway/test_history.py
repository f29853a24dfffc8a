"""An hour of figures in memory: rates of counters, gaps, which topics, how much it takes."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass, field
from math import isclose
from typing import Any

import pytest

from gateway.admin.metrics import history
from gateway.admin.metrics.history import POINTS, STEP_MS, STEP_S, TOPIC_SERIES, History, Series
from gateway.admin.metrics.tenant_totals import TenantTotals
from kernel.common.errors import Code, KernelError


def values(**given: int) -> dict[str, int]:
    return {**dict.fromkeys(TOPIC_SERIES, 0), **given}


def test_a_counter_is_a_rate_and_a_gauge_is_what_it_is() -> None:
    series = Series(TOPIC_SERIES, 100)
    series.put(100, values(published=1_000, ready=5))
    series.put(101, values(published=1_050, ready=7))
    series.put(104, values(published=1_350, ready=3))
    shown = series.shown(104)
    assert shown["published"][-5:] == [None, 5.0, None, None, 10.0]
    assert shown["ready"][-5:] == [5, 7, None, None, 3]
    assert len(shown["ready"]) == POINTS
    assert series.shown(106)["ready"][-3:] == [3, None, None]


def test_what_is_older_than_an_hour_is_gone() -> None:
    series = Series(TOPIC_SERIES, 0)
    for number in range(POINTS + 10):
        series.put(number, values(ready=number))
    assert series.shown(POINTS + 9)["ready"][0] == 10
    series.put(10 * POINTS, values(ready=1))
    assert series.shown(10 * POINTS)["ready"] == [None] * (POINTS - 1) + [1]


def test_a_counter_that_begins_again_is_no_rate_below_zero() -> None:
    series = Series(TOPIC_SERIES, 0)
    series.put(1, values(published=100))
    series.put(2, values(published=7))
    assert series.shown(2)["published"][-1] == 0


class Clock:
    ms = STEP_MS * 1_000

    def wall_ms(self) -> int:
        return self.ms


@dataclass(frozen=True)
class Topic:
    tenant: str
    name: str
    numbers: tuple[int, ...] = (0,)
    groups: Any = field(default_factory=lambda: {"g": None})


@dataclass
class Figures:
    info: Topic


@dataclass
class Statistics:
    ready: int = 3
    leased: int = 1
    delayed: int = 0


class Topics:
    def __init__(self) -> None:
        self.seen = 0
        self.tenants: dict[str, Any] = {}
        self.chosen: list[Any] = []
        self.looked = 0

    async def look(self) -> None:
        self.looked += 1


class Client:
    def __init__(self) -> None:
        self.stored: dict[tuple[str, str], int] = {}
        self.asked: list[str] = []
        self.fails = False

    async def load(self, tenant: str, *, topics: Any, routers: Any) -> None:
        self.asked += topics

    def topic(self, tenant: str, name: str) -> Any:
        return Topic(tenant, name) if (tenant, name) in self.stored else None

    async def span(self, topic: Topic, _number: int) -> tuple[int, int]:
        if self.fails:
            raise KernelError(Code.UNAVAILABLE, "no leader")
        return 0, self.stored[topic.tenant, topic.name]

    async def statistics(self, _topic: Topic, _group: str) -> Statistics:
        return Statistics()


@dataclass
class World:
    history: History
    topics: Topics
    client: Client
    clock: Clock

    async def point(self, steps: int = 1) -> None:
        self.clock.ms += steps * STEP_MS
        await self.history.take()


@pytest.fixture
def world() -> World:
    topics, client, clock = Topics(), Client(), Clock()
    fakes: Any = topics, client, clock
    return World(History(*fakes), topics, client, clock)


async def test_a_topic_is_followed_from_when_it_is_first_asked_for(world: World) -> None:
    orders: Any = Topic("acme", "orders")
    world.client.stored["acme", "orders"] = 100
    await world.point()
    assert world.client.asked == []
    assert set(world.history.of_topic(orders)[1]["ready"]) == {None}
    await world.point()
    world.client.stored["acme", "orders"] = 200
    await world.point()
    end_ms, shown = world.history.of_topic(orders)
    assert end_ms == world.clock.ms
    assert shown["ready"][-2:] == [3, 3]
    assert shown["published"][-1] == shown["done"][-1] == 10
    world.client.fails = True
    await world.point()
    assert world.history.of_topic(orders)[1]["ready"][-2:] == [3, None]


async def test_a_topic_that_nobody_looks_at_for_an_hour_is_let_go(world: World) -> None:
    orders: Any = Topic("acme", "orders")
    world.client.stored["acme", "orders"] = 1
    world.history.of_topic(orders)
    await world.point()
    world.client.asked.clear()
    await world.point(POINTS)
    await world.point()
    assert world.client.asked == []


async def test_one_tenant_does_not_take_the_places_of_all(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs: Any = Topic("globex", "theirs")
    world.client.stored["globex", "theirs"] = 1
    world.history.of_topic(theirs)
    for number in range(2 * history.OPENED_MAX):
        each: Any = Topic("acme", f"topic {number}")
        world.history.of_topic(each)
    await world.point()
    assert "theirs" in world.client.asked
    assert len(world.client.asked) == history.OPENED_MAX


async def test_the_selection_is_kept_and_goes_on_when_it_is_left(world: World) -> None:
    orders: Any = Topic("acme", "orders")
    world.client.stored["acme", "orders"] = 1
    world.topics.chosen = [Figures(orders)]
    await world.point()
    world.history.of_topic(orders)
    world.topics.chosen = []
    await world.point()
    await world.point()
    assert world.history.of_topic(orders)[1]["ready"][-3:] == [3, 3, 3]


async def test_totals_of_all_tenants_are_those_of_each_added_up(world: World) -> None:
    for tenant, ready in (("acme", 5), ("globex", 7)):
        totals = world.topics.tenants[tenant] = TenantTotals()
        totals.ready = ready
    await world.point()
    for totals in world.topics.tenants.values():
        totals.now["published"] += 30
    await world.point()
    _, all_of_them = world.history.of_tenant(None)
    assert all_of_them["ready"][-1] == 12
    assert isclose(all_of_them["published"][-1] or 0, 60 / STEP_S)
    assert world.history.of_tenant("acme")[1]["ready"][-1] == 5
    assert set(world.history.of_tenant("nobody")[1]["ready"]) == {None}


async def test_very_many_topics_are_surveyed_less_often(world: World) -> None:
    await world.point()
    world.topics.seen = 100_000
    for _ in range(22):
        await world.point()
    assert world.topics.looked == 3


async def test_all_of_it_takes_no_more_than_ten_megabytes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [Topic("acme", f"topic {number}") for number in range(1_200)]
    for topic in names:
        world.client.stored["acme", topic.name] = 1
    world.topics.tenants.update((f"tenant {number}", TenantTotals()) for number in range(300))
    world.topics.chosen = [Figures(each) for each in names[:600]]
    tracemalloc.start()
    try:
        for topic in names[600:]:
            opened: Any = topic
            world.history.of_topic(opened)
        await world.point()
        await world.point()
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used <= history.SERIES_BYTES_MAX <= 10_000_000
