"""An hour of figures in memory, a point each 10 s: charts need nothing besides this process.

Kept are the totals of tenants, the topics that /metrics shows (`topic_selection`), and any other
from when somebody first asks for it, as long as somebody does each hour. A series is 360 numbers of
4 bytes; SERIES_BYTES_MAX says what all of them take at most. What was not measured is null: before
the beginning, while the process stood still, where a leader did not answer.

Topics are asked for one by one, by the kernel's client, so that a gateway of a cluster has them as
a process with a store does. Totals come of a survey of all topics that are led here; where these
are so many that it takes long, not every point has one (SURVEYED_AT_ONCE). A gateway adds what the
stores and the other gateways say of theirs (`totals_elsewhere`).
"""

from __future__ import annotations

import asyncio
from array import array
from contextlib import suppress
from math import isnan, nan
from typing import TYPE_CHECKING, Final

import structlog

from gateway.admin.metrics.topic_metrics import SURVEYED_AT_ONCE
from gateway.admin.shared_room import SharedRoom
from gateway.process.slices import Slice
from kernel.common.errors import KernelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.admin.metrics.tenant_totals import TenantTotals
    from gateway.admin.metrics.topic_metrics import TopicMetrics
    from gateway.admin.metrics.totals_elsewhere import Missing, TotalsElsewhere
    from kernel.api.client import Client
    from kernel.api.model import TopicInfo
    from kernel.common.ports import Clock

STEP_S: Final = 10
POINTS: Final = 360
STEP_MS: Final = STEP_S * 1_000

SELECTED_MAX: Final = 500
"""Of the topics that /metrics shows."""

OPENED_MAX: Final = 500
"""Others, that somebody looks at: each is asked for every point."""

TENANTS_MAX: Final = 200

ASKED_POINTS: Final = POINTS
"""A topic that nobody has looked at for so long is kept no more."""

TENANT_SERIES: Final = ("published", "delivered", "acked", "ready", "leased")
TOPIC_SERIES: Final = ("published", "done", "ready", "leased")
NOTHING: Final[Mapping[str, float]] = dict.fromkeys(TENANT_SERIES, 0.0)
UNKNOWN: Final = {**NOTHING, "ready": nan, "leased": nan}
"""Where a store that leads has not answered."""

COUNTERS: Final = frozenset({"published", "delivered", "acked", "done"})
"""Of these a point is the rate a second since the point before."""

SERIES_BYTES_MAX: Final = (
    (SELECTED_MAX + OPENED_MAX) * len(TOPIC_SERIES) + (TENANTS_MAX + 1) * len(TENANT_SERIES)
) * (POINTS * 4 + 100) + (SELECTED_MAX + OPENED_MAX + TENANTS_MAX) * 800
"""Arrays and what holds them: 8.7 MB."""

_log = structlog.get_logger("weir.admin")


class Series:
    """Points of one thing."""

    __slots__ = ("_before", "_numbers", "asked", "at", "points")

    def __init__(self, names: tuple[str, ...], number: int) -> None:
        """`number`: of the point that comes next."""
        self.points = {name: array("f", [nan]) * POINTS for name in names}
        self.at = number - 1
        """The last point that is known."""
        self.asked = number
        """The point at which somebody last asked for it."""
        self._before: dict[str, float] | None = None

    def put(self, number: int, values: Mapping[str, float]) -> None:
        """What was counted at a point."""
        passed = number - self.at
        if passed <= 0:
            return
        before = self._before
        for name, points in self.points.items():
            for missed in range(max(self.at + 1, number - POINTS), number):
                points[missed % POINTS] = nan
            value: float = values[name]
            if name in COUNTERS:
                value = nan if before is None else max(value - before[name], 0) / passed / STEP_S
            points[number % POINTS] = value
        self.at = number
        self._before = {name: values[name] for name in self.points if name in COUNTERS}

    def shown(self, number: int) -> dict[str, list[float | None]]:
        """The hour that ends with a point, the oldest first."""
        first = number - POINTS + 1
        return {
            name: [
                None if each > self.at or isnan(points[each % POINTS]) else points[each % POINTS]
                for each in range(first, number + 1)
            ]
            for name, points in self.points.items()
        }


class History:
    """Of one process. `run` takes the points."""

    def __init__(
        self,
        topics: TopicMetrics,
        client: Client,
        clock: Clock,
        elsewhere: TotalsElsewhere | None = None,
    ) -> None:
        """`elsewhere`: totals of the cluster's other processes, which are added to those of what is
        led here; None: nothing is led elsewhere.
        """
        self._elsewhere = elsewhere
        self._topics = topics
        self._client = client
        self._clock = clock
        self._tenants: dict[str, Series] = {}
        self._all: Series | None = None
        """Totals of all tenants, those beyond TENANTS_MAX too."""
        self._selected: dict[tuple[str, str], Series] = {}
        self._opened: SharedRoom[tuple[str, str], Series] = SharedRoom(OPENED_MAX)
        self._surveyed = 0

    @property
    def _number(self) -> int:
        """Of the point that is under way."""
        return self._clock.wall_ms() // STEP_MS

    async def run(self) -> None:
        """Take a point each STEP_S, until cancelled."""
        while True:
            await asyncio.sleep(STEP_S - self._clock.wall_ms() % STEP_MS / 1_000)
            try:
                await self.take()
            except Exception:  # noqa: BLE001 - a bug: charts have a gap, and the process goes on
                _log.exception("no point of the history")

    async def take(self) -> None:
        """Take the point of now."""
        number = self._number
        every = 1 + self._topics.seen // SURVEYED_AT_ONCE
        if number - self._surveyed >= every:
            self._surveyed = number
            await self._topics.look()
            self._select(number)
            await self._take_totals(number)
        piece = Slice()
        for (tenant, name), series in (*self._selected.items(), *self._opened.items()):
            await self._take_topic(number, tenant, name, series)
            if piece.is_over:
                await piece.pause()

    @property
    def silent(self) -> list[Missing]:
        """Processes that the last point of totals is without."""
        return [] if self._elsewhere is None else self._elsewhere.silent

    async def _take_totals(self, number: int) -> None:
        elsewhere: Mapping[str, Mapping[str, int]] = {}
        nothing = NOTHING
        if self._elsewhere is not None:
            elsewhere = await self._elsewhere.ask()
            nothing = NOTHING if self._elsewhere.is_whole else UNKNOWN
        sums, own = dict(nothing), self._topics.tenants
        for tenant in own.keys() | elsewhere.keys():
            figures = _added(nothing, own.get(tenant), elsewhere.get(tenant, {}))
            for name, value in figures.items():
                sums[name] += value
            series = self._tenants.get(tenant)
            if series is None and len(self._tenants) < TENANTS_MAX:
                series = self._tenants[tenant] = Series(TENANT_SERIES, number)
            if series is not None:
                series.put(number, figures)
        self._all = self._all or Series(TENANT_SERIES, number)
        self._all.put(number, sums)

    def _select(self, number: int) -> None:
        """Follow those that /metrics shows; who is no longer among them stays while it is looked
        at.
        """
        chosen = [(each.info.tenant, each.info.name) for each in self._topics.chosen]
        before, self._selected = self._selected, {}
        for key in chosen[:SELECTED_MAX]:
            found = before.pop(key, None) or self._opened.remove(key)
            self._selected[key] = found or Series(TOPIC_SERIES, number)
        for key, series in before.items():
            if number - series.asked < ASKED_POINTS:
                self._opened.put(key[0], key, series)

    async def _take_topic(self, number: int, tenant: str, name: str, series: Series) -> None:
        if number - series.asked >= ASKED_POINTS and (tenant, name) not in self._selected:
            self._opened.remove((tenant, name))
            return
        with suppress(KernelError):  # no leader: the chart has a gap
            await self._client.load(tenant, topics=(name,), routers=())
            topic = self._client.topic(tenant, name)
            if topic is not None:
                series.put(number, await figures_of(self._client, topic))

    # --- Looking ----------------------------------------------------------------------------

    def of_topic(self, topic: TopicInfo) -> tuple[int, dict[str, list[float | None]]]:
        """(when the last point was, ms since the epoch; series) of one, followed from now on."""
        key, number = (topic.tenant, topic.name), self._number
        series = self._selected.get(key) or self._opened.use(key)
        if series is None:
            series = Series(TOPIC_SERIES, number)
            self._opened.put(topic.tenant, key, series)
        series.asked = number
        return number * STEP_MS, series.shown(number)

    def of_tenant(self, tenant: str | None) -> tuple[int, dict[str, list[float | None]]]:
        """The totals of one, or of all."""
        number = self._number
        series = self._all if tenant is None else self._tenants.get(tenant)
        return number * STEP_MS, (series or Series(TENANT_SERIES, number)).shown(number)


def _added(
    nothing: Mapping[str, float], own: TenantTotals | None, elsewhere: Mapping[str, int]
) -> dict[str, float]:
    """The figures of a tenant, here and elsewhere."""
    figures = dict(nothing)
    here = {} if own is None else {**own.now, "ready": own.ready, "leased": own.leased}
    for found in (here, elsewhere):
        for name in figures.keys() & found.keys():
            figures[name] += found[name]
    return figures


async def figures_of(client: Client, topic: TopicInfo) -> dict[str, int]:
    """What a topic's points are made of: `published` counts what was stored, `done` what its groups
    are done with, all of them; `ready` is that of the group that is furthest behind. Raises
    KernelError.
    """
    published = 0
    for number in topic.numbers:
        published += (await client.span(topic, number))[1]
    each = [await client.statistics(topic, name) for name in topic.groups]
    open_messages = sum(one.ready + one.leased + one.delayed for one in each)
    return {
        "published": published,
        "done": published * len(each) - open_messages,
        "ready": max((one.ready for one in each), default=0),
        "leased": sum(one.leased for one in each),
    }
