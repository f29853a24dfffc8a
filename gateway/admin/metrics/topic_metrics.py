"""Metrics by topic, queue, group and tenant, as a scrape gets them.

GET /metrics            besides the process's own: totals of tenants; to whoever signs in, the
                        topics that are selected (`topic_selection`)
GET /metrics/detailed   ?family=NAME (again for more) &tenant=NAME &name=PATTERN: the others

A scrape goes through all topics, in slices between which others have their turn.
Scrapes of /metrics that come at once share a survey.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from fnmatch import translate
from re import compile as compile_pattern
from typing import TYPE_CHECKING, Final

from gateway.admin.metrics.series_text import Kind, MetricHead, SeriesPieces, columns_of, write
from gateway.admin.metrics.size_metrics import (
    SIZE_COLUMNS,
    SIZES_COLUMNS,
    size_series,
    sizes_series,
)
from gateway.admin.metrics.tenant_totals import Totals
from gateway.admin.metrics.topic_families import FAMILIES, TENANT_COLUMNS, tenant_series
from gateway.admin.metrics.topic_selection import Selection
from gateway.process.slices import Slice
from kernel.common.errors import Code, KernelError
from kernel.store.topic_figures import is_shown, survey

if TYPE_CHECKING:
    from gateway.admin.metrics.series_text import Series, TextForm
    from gateway.admin.metrics.tenant_totals import TenantTotals
    from gateway.admin.metrics.topic_families import Family
    from gateway.config.schema import Metrics
    from kernel.common.ids import QueueId, TopicId
    from kernel.common.ports import Clock
    from kernel.definitions.sizing import Figures
    from kernel.store.replicas.replica import Replica
    from kernel.store.topic_figures import TopicFigures

DETAILED_MAX = 2
"""Detailed scrapes at once: each holds up to 300 bytes for each series of a family."""

_OWN = columns_of(
    [
        MetricHead(
            "weir_metrics_topics_left_out",
            Kind.GAUGE,
            "Topics that node.metrics.topics names above the most that /metrics shows.",
        ),
        MetricHead(
            "weir_metrics_counts_forgotten",
            Kind.COUNTER,
            "Consumer groups whose counts began at zero again, since so many are counted.",
        ),
    ]
)


class TopicMetrics:
    """Of one process."""

    def __init__(
        self, replicas: Callable[[], Sequence[Replica]], clock: Clock, settings: Metrics
    ) -> None:
        """`replicas`: the Raft groups that this process is a member of."""
        self.sizes: Callable[[], Iterable[Figures]] = tuple
        """Topics with a size that this process looks at."""
        self._replicas = replicas
        self._clock = clock
        self._selection = Selection(settings.topics, settings.top)
        self._totals = Totals()
        self._chosen: list[TopicFigures] = []
        self._lock = asyncio.Lock()
        self._surveys = 0
        self.seen = 0
        """Topics that the last survey went through."""
        self._depths: dict[TopicId, tuple[int, int]] = {}
        self._surveyed_ms = -(10**9)
        self._detailed = 0
        for each in replicas():
            each.counts.wants_waits = self._wants_waits(each)

    def _wants_waits(self, replica: Replica) -> Callable[[QueueId], bool]:
        def wanted(queue: QueueId) -> bool:
            state = replica.state.queues.peek(queue)
            return state is not None and self._selection.patterns.match(state.topic.definition)

        return wanted

    async def look(self, fresh_ms: int = 0) -> None:
        """Go through all topics once: at the start, so that counters count from there. `fresh_ms`:
        not if that was done so shortly before.
        """
        before = self._surveys
        if fresh_ms and self._clock.monotonic_ms() - self._surveyed_ms < fresh_ms:
            return
        async with self._lock:
            if self._surveys == before:
                await self._survey()
                self._surveys += 1

    async def _survey(self) -> None:
        replicas = self._replicas()
        found, choosing = self._totals.begin(replicas), self._selection.begin()
        seen = filled = 0
        depths = self._depths
        async for part in _slices(replicas):
            seen += len(part)
            for figures in part:
                if figures.messages:
                    filled += 1
                    groups = figures.groups.values()
                    ready = max((each.ready for each in groups), default=0)
                    depths[figures.info.id] = ready, sum(each.leased for each in groups)
                else:
                    depths.pop(figures.info.id, None)
                found.add(figures)
                choosing.add(figures)
        if len(depths) > filled:
            await _forget_gone(depths, replicas)
        self.seen = seen
        self._surveyed_ms = self._clock.monotonic_ms()
        self._totals.end(found)
        self._chosen = self._selection.end(choosing, self._clock.monotonic_ms())

    @property
    def depths(self) -> Mapping[TopicId, tuple[int, int]]:
        """(ready of the group that is furthest behind, leased) as of the last survey, of topics
        that have any. They are the same while a survey goes on, which brings them up to date one by
        one: to make 100,000 anew, and to free those before, takes milliseconds at a time.
        """
        return self._depths

    @property
    def tenants(self) -> Mapping[str, TenantTotals]:
        """Totals as of the last survey, by tenant."""
        return self._totals.tenants

    @property
    def chosen(self) -> Sequence[TopicFigures]:
        """The topics that /metrics shows, as of the last survey."""
        return self._chosen

    async def totals(self, form: TextForm, *, names: bool) -> AsyncIterator[bytes]:
        """What /metrics has of topics; `names`: with the topics that are selected."""
        await self.look()
        tenants = [tenant_series(*each) for each in sorted(self._totals.tenants.items())]
        forgotten = sum(each.counts.forgotten for each in self._replicas())
        own: list[Series] = [("", (self._selection.left_out, forgotten))]
        chosen, now_ms = self._chosen if names else (), self._clock.wall_ms()
        async for chunk in write(TENANT_COLUMNS, SeriesPieces(tenants), form):
            yield chunk
        async for chunk in write(_OWN, SeriesPieces(own), form):
            yield chunk
        sizes = list(self.sizes())
        async for chunk in write(SIZES_COLUMNS, SeriesPieces(sizes_series(sizes)), form):
            yield chunk
        if names:
            async for chunk in write(SIZE_COLUMNS, SeriesPieces(size_series(sizes)), form):
                yield chunk
        for family in FAMILIES.values() if names else ():
            series = SeriesPieces()
            for figures in chosen:
                series.extend(family.series(figures, now_ms))
            async for chunk in write(family.columns, series, form):
                yield chunk

    def detailed(
        self, form: TextForm, families: Sequence[str], tenant: str | None, name: str | None
    ) -> AsyncIterator[bytes]:
        """Some families, of every topic or of those that are asked for. Raises KernelError
        INVALID_ARGUMENT; BUSY: there are DETAILED_MAX of them.
        """
        unknown = [each for each in families if each not in FAMILIES]
        if unknown or not families:
            listed = ", ".join(FAMILIES)
            message = f"family={unknown[0]} is none" if unknown else "family=NAME is missing"
            raise KernelError(Code.INVALID_ARGUMENT, f"{message}; there are {listed}")
        if self._detailed >= DETAILED_MAX:
            message = f"{DETAILED_MAX} detailed scrapes are under way: ask again"
            raise KernelError(Code.BUSY, message)
        matches = compile_pattern(translate(name)).match if name is not None else None

        def is_asked(figures: TopicFigures) -> bool:
            info = figures.info
            return (
                is_shown(info)
                and (tenant is None or info.tenant == tenant)
                and (matches is None or matches(info.name) is not None)
            )

        asked = [FAMILIES[each] for each in dict.fromkeys(families)]
        return self._stream(form, asked, is_asked)

    async def _stream(
        self,
        form: TextForm,
        families: Sequence[Family],
        is_asked: Callable[[TopicFigures], bool],
    ) -> AsyncIterator[bytes]:
        self._detailed += 1
        try:
            now_ms = self._clock.wall_ms()
            found = [SeriesPieces() for _ in families]
            async for part in _slices(self._replicas()):
                for figures in part:
                    if is_asked(figures):
                        for family, known in zip(families, found, strict=True):
                            known.extend(family.series(figures, now_ms))
            for family in families:
                async for chunk in write(family.columns, found.pop(0), form):
                    yield chunk
        finally:
            self._detailed -= 1


SURVEYED_AT_ONCE: Final = 10_000
"""Topics that are surveyed whenever somebody wants to know: 0.1 s of a core."""

SLICE_TOPICS = 8
"""Topics between two looks at the clock."""


async def _forget_gone(depths: dict[TopicId, tuple[int, int]], replicas: Sequence[Replica]) -> None:
    """Topics that were deleted, or are led elsewhere by now."""
    led = [each.state.topics for each in replicas if each.serving]
    piece = Slice()
    for ident in list(depths):
        if not any(ident in topics for topics in led):
            del depths[ident]
        if piece.is_over:
            await piece.pause()


async def _slices(replicas: Sequence[Replica]) -> AsyncIterator[Sequence[TopicFigures]]:
    """All topics, a few at a time; others have their turn between two slices."""
    piece = Slice()
    part: list[TopicFigures] = []
    for figures in survey(replicas):
        part.append(figures)
        if len(part) >= SLICE_TOPICS:
            yield part
            part = []
            if piece.is_over:
                await piece.pause()
    yield part
