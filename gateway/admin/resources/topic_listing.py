"""Which topics a listing has: filtered, searched, sorted and paged here, whatever number there are.

All topics of the tenant are gone through, in slices between which others have their turn, and few
more than two pages of them are held. What only leaders know (`ready`, `leased`) is taken for the
order from the last survey of this process; a gateway of a cluster, which has none of that, asks for
each, and refuses where too many match.
"""

from __future__ import annotations

import base64
import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from gateway.admin.metrics.history import figures_of
from gateway.admin.metrics.topic_metrics import SURVEYED_AT_ONCE
from gateway.process.slices import Slice
from kernel.common.errors import UNDECODABLE, Code, KernelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.admin.metrics.topic_metrics import TopicMetrics
    from gateway.admin.resources.declared_shapes import DeclaredShapes
    from kernel.api.client import Client
    from kernel.api.model import TopicInfo
    from kernel.common.ids import TopicId

LOOK_TOPICS: Final = 16
"""Topics between two looks at the clock."""

HELD_MORE: Final = 200
"""Topics beyond two pages that are held before the best are chosen: small pages cost no more."""

ASKED_MAX: Final = 1_000
"""Topics whose leaders are asked one by one for an order."""

FRESH_MS: Final = 2_000
"""A survey that is older is made anew, of few topics (ASKED_MAX) in any case."""

DEFINED: Final = ("name", "queues", "groups")
MEASURED: Final = ("ready", "leased")
SORTS: Final = (*DEFINED, *MEASURED)

Key = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Of a listing."""

    tenant: str
    prefix: str = ""
    search: str = ""
    type: str | None = None
    sort: str = "name"
    """A column; `-` before it: the largest first."""
    after: str = ""
    limit: int = 100


@dataclass(frozen=True, slots=True)
class Found:
    """A page. `total`: of all that match; `next`: see `Wanted.after`; empty at the end."""

    topics: list[TopicInfo]
    next: str | None
    total: int


class TopicListing:
    """Finds pages of topics."""

    def __init__(
        self, client: Client, declared: DeclaredShapes, topics: TopicMetrics | None
    ) -> None:
        """`topics`: None where topics are led in other processes."""
        self._client = client
        self._declared = declared
        self._topics = topics

    async def find(self, wanted: Wanted) -> Found:
        """Raises KernelError INVALID_ARGUMENT: no such column, no such page, too many to sort."""
        column, is_down = wanted.sort.removeprefix("-"), wanted.sort.startswith("-")
        if column not in SORTS:
            message = f"sort={column} is no column; there are {', '.join(SORTS)}"
            raise KernelError(Code.INVALID_ARGUMENT, message)
        depths = await self._depths(wanted) if column in MEASURED else {}
        at = MEASURED.index(column) if column in MEASURED else 0
        after = _key_of(wanted.after, column) if wanted.after else None
        choose = heapq.nlargest if is_down else heapq.nsmallest
        best: list[tuple[Key, TopicInfo]] = []
        total = 0
        piece = Slice()
        for seen, topic in enumerate(self._client.topics(wanted.tenant)):
            if not seen % LOOK_TOPICS and piece.is_over:
                await piece.pause()
            if not self._is_wanted(topic, wanted):
                continue
            total += 1
            match column:
                case "name":
                    value = 0
                case "queues":
                    value = len(topic.queues)
                case "groups":
                    value = len(topic.groups)
                case _:
                    value = depths.get(topic.id, (0, 0))[at]
            key = value, topic.name
            if after is None or (key < after if is_down else key > after):
                best.append((key, topic))
                if len(best) > 2 * wanted.limit + HELD_MORE:
                    best = choose(wanted.limit + 1, best, key=_first)
        best = choose(wanted.limit + 1, best, key=_first)
        following = None
        if len(best) > wanted.limit:
            following = _token_of(best[wanted.limit - 1][0], column)
        return Found([topic for _, topic in best[: wanted.limit]], following, total)

    def _is_wanted(self, topic: TopicInfo, wanted: Wanted) -> bool:
        name = topic.name
        return (
            not topic.options.hidden
            and (not wanted.prefix or name.startswith(wanted.prefix))
            and (not wanted.search or wanted.search in name.lower())
            and (wanted.type is None or wanted.type == self._declared.type_of(topic))
        )

    async def _depths(self, wanted: Wanted) -> Mapping[TopicId, tuple[int, int]]:
        """(ready, leased) of the topics that have any."""
        if self._topics is not None:
            if self._topics.seen <= SURVEYED_AT_ONCE:
                await self._topics.look(FRESH_MS if self._topics.seen > ASKED_MAX else 0)
            return self._topics.depths
        found = [
            each for each in self._client.topics(wanted.tenant) if self._is_wanted(each, wanted)
        ]
        if len(found) > ASKED_MAX:
            message = (
                f"{len(found)} topics match, and a gateway of a cluster sorts at most {ASKED_MAX} "
                "by what their leaders know: search for fewer, or sort by name, queues or groups"
            )
            raise KernelError(Code.INVALID_ARGUMENT, message)
        depths = {}
        for topic in found:
            figures = await figures_of(self._client, topic)
            depths[topic.id] = figures["ready"], figures["leased"]
        return depths


def _first(each: tuple[Key, TopicInfo]) -> Key:
    return each[0]


def _token_of(key: Key, column: str) -> str:
    if column == "name":
        return key[1]
    return base64.urlsafe_b64encode(msgspec.json.encode(key)).decode()


def _key_of(token: str, column: str) -> Key:
    if column == "name":
        return 0, token
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(token), type=tuple[int, str])
    except (*UNDECODABLE, ValueError):
        message = "after is not the `next` of a page of this order"
        raise KernelError(Code.INVALID_ARGUMENT, message) from None
