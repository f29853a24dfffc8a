"""Which topics /metrics shows: those that the operator's patterns name, and the busiest.

A pattern is `TENANT:TOPIC`, with `*` and `?` as in file names (`default:orders.*`). The busiest
have places. A place is kept: only a topic that is deleted gives it up, or one that has had it for
PLACE_MS to another with twice as much, so that series do not come and go.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Sequence
from fnmatch import translate
from typing import TYPE_CHECKING

from kernel.store.topic_figures import is_shown

if TYPE_CHECKING:
    from kernel.api.model import TopicInfo
    from kernel.common.ids import TopicId
    from kernel.store.topic_figures import TopicFigures

SELECTED_MAX = 5_000
"""Topics that patterns may bring into /metrics: some 100,000 samples. The rest is at
/metrics/detailed; how many were left out is a metric."""

PLACE_MS = 3_600_000
"""For so long a place is nobody else's: longer than what a chart shows at a glance."""


class Patterns:
    """Patterns of an operator."""

    def __init__(self, patterns: Iterable[str]) -> None:
        patterns = tuple(patterns)
        self.is_any = bool(patterns)
        """Whether there are any: of 100,000 topics each would be tried for nothing."""
        self._regex = re.compile("|".join(map(translate, patterns)) or r"(?!)")

    def match(self, topic: TopicInfo) -> bool:
        """Whether one of them names a topic."""
        return self._regex.match(f"{topic.tenant}:{topic.name}") is not None


class Selection:
    """Chooses among the topics of each survey."""

    def __init__(self, patterns: Sequence[str], top: int) -> None:
        """`top`: places for the busiest."""
        self.patterns = Patterns(patterns)
        self._top = top
        self._named: dict[TopicId, None] = {}
        """Topics that patterns brought in."""
        self._places: dict[TopicId, int] = {}
        """Who has a place, and since when."""
        self.left_out = 0

    def begin(self) -> Choosing:
        """A survey begins."""
        return Choosing(self.patterns, self._top, self._named, self._places)

    def end(self, choosing: Choosing, now_ms: int) -> list[TopicFigures]:
        """It is over: the topics to be shown, by tenant and name."""
        self.left_out = choosing.left_out
        self._named = dict.fromkeys(choosing.named)
        holders = choosing.holders
        places = {ident: self._places[ident] for ident in holders}
        weakest = [(each.weight, ident) for ident, each in holders.items()]
        heapq.heapify(weakest)
        for weight, ident, figures in sorted(choosing.candidates, reverse=True):
            if len(places) >= self._top and not _gives_way(weakest, places, weight, now_ms):
                break
            if len(places) >= self._top:
                _, gone = heapq.heappop(weakest)
                del places[gone], holders[gone]
            places[ident], holders[ident] = now_ms, _Weighed(weight, figures)
        self._places = places
        chosen = {**choosing.named, **{ident: each.figures for ident, each in holders.items()}}
        return sorted(chosen.values(), key=lambda each: (each.info.tenant, each.info.name))


def _gives_way(
    weakest: list[tuple[int, TopicId]], places: dict[TopicId, int], weight: int, now_ms: int
) -> bool:
    """Whether the weakest that has had its place long enough gives it to one of a weight."""
    while weakest and now_ms - places[weakest[0][1]] < PLACE_MS:
        heapq.heappop(weakest)
    return bool(weakest) and weight >= 2 * weakest[0][0]


class _Weighed:
    __slots__ = ("figures", "weight")

    def __init__(self, weight: int, figures: TopicFigures) -> None:
        self.weight = weight
        self.figures = figures


class Choosing:
    """The choice of one survey, under way."""

    def __init__(
        self,
        patterns: Patterns,
        top: int,
        named_before: dict[TopicId, None],
        places: dict[TopicId, int],
    ) -> None:
        self._patterns = patterns
        self._top = top
        self._named_before = named_before
        self._room = SELECTED_MAX - len(named_before)
        self._places = places
        self.named: dict[TopicId, TopicFigures] = {}
        self.holders: dict[TopicId, _Weighed] = {}
        self.candidates: list[tuple[int, TopicId, TopicFigures]] = []
        """A heap of the busiest without a place: (weight, id, figures)."""
        self.left_out = 0

    def add(self, figures: TopicFigures) -> None:
        """One topic more (hot: 100,000 of them in a survey)."""
        info = figures.info
        if not is_shown(info):
            return
        ident = info.id
        if ident in self._named_before:
            self.named[ident] = figures
            return
        if self._patterns.is_any and self._patterns.match(info):
            if self._room > 0:
                self._room -= 1
                self.named[ident] = figures
                return
            self.left_out += 1
        if not self._top:
            return
        weight = figures.published + figures.messages
        if ident in self._places:
            self.holders[ident] = _Weighed(weight, figures)
        elif len(self.candidates) < self._top:
            heapq.heappush(self.candidates, (weight, ident, figures))
        elif weight > self.candidates[0][0]:
            heapq.heapreplace(self.candidates, (weight, ident, figures))
