"""Pages of topics: searched, sorted, whole and without repeats, and quick with 100,000."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway.admin.resources import topic_listing
from gateway.admin.resources.topic_listing import SORTS, Found, TopicListing, Wanted
from kernel.common.errors import Code, KernelError

PAGE_CPU_S = 0.2


@dataclass(slots=True)
class Options:
    hidden: bool = False


@dataclass(slots=True)
class Topic:
    id: int
    name: str
    options: Options = field(default_factory=Options)
    queues: tuple[int, ...] = (0,)
    numbers: tuple[int, ...] = (0,)
    groups: tuple[str, ...] = ("default",)


class Client:
    def __init__(self, topics: list[Topic]) -> None:
        self._topics = topics

    def topics(self, _tenant: str) -> list[Topic]:
        return list(self._topics)

    async def span(self, topic: Topic, _number: int) -> tuple[int, int]:
        return 0, topic.id

    async def statistics(self, topic: Topic, _group: str) -> Any:
        return type("Figures", (), {"ready": topic.id, "leased": 0, "delayed": 0})


class Shapes:
    def type_of(self, topic: Topic) -> str:
        return "work" if len(topic.queues) == 1 else "normal"


class Surveyed:
    def __init__(self, topics: list[Topic]) -> None:
        self.seen = len(topics)
        self.depths = {each.id: (each.id % 7, each.id % 3) for each in topics if each.id % 5}
        self.looked = 0

    async def look(self, _fresh_ms: int) -> None:
        self.looked += 1


def listing(topics: list[Topic], *, surveyed: bool = True) -> tuple[TopicListing, Surveyed]:
    survey = Surveyed(topics)
    parts: Any = Client(topics), Shapes(), survey if surveyed else None
    return TopicListing(*parts), survey


def some(number: int) -> list[Topic]:
    return [
        Topic(each, f"Topic {each * 7919 % number:06}", queues=(0,) * (1 + each % 3))
        for each in range(number)
    ]


async def pages(found: TopicListing, **wanted: Any) -> tuple[list[str], set[int]]:
    names: list[str] = []
    totals = set()
    after: str | None = ""
    while after is not None:
        page: Found = await found.find(Wanted("default", limit=7, after=after, **wanted))
        names += [each.name for each in page.topics]
        totals.add(page.total)
        after = page.next
    return names, totals


@pytest.mark.parametrize("sort", [*SORTS, *(f"-{each}" for each in SORTS)])
async def test_pages_have_each_topic_once_in_order(sort: str) -> None:
    topics = some(100)
    topics[3].options.hidden = True
    found, survey = listing(topics)
    names, totals = await pages(found, sort=sort)
    shown = {each.name: each for each in topics if not each.options.hidden}
    assert totals == {99}
    assert sorted(names) == sorted(shown)

    def key(name: str) -> tuple[int, str]:
        column = sort.removeprefix("-")
        ready, leased = survey.depths.get(shown[name].id, (0, 0))
        by = {"ready": ready, "leased": leased, "queues": len(shown[name].queues), "groups": 1}
        return by.get(column, 0), name

    assert names == sorted(names, key=key, reverse=sort[0] == "-")


async def test_what_is_searched_for_is_found_anywhere_in_a_name() -> None:
    found, _ = listing(some(100))
    names, totals = await pages(found, search="pic 00004")
    assert names == [f"Topic 00004{each}" for each in range(10)]
    assert totals == {10}
    assert (await pages(found, search="pic", prefix="Topic 00009", type="work"))[1] == {4}
    assert await pages(found, search="nothing") == ([], {0})


async def test_a_gateway_of_a_cluster_asks_the_leaders_of_what_matches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topics = some(30)
    found, _ = listing(topics, surveyed=False)
    names, _ = await pages(found, sort="-ready")
    assert names == [each.name for each in reversed(topics)]
    monkeypatch.setattr(topic_listing, "ASKED_MAX", 20)
    with pytest.raises(KernelError, match="search for fewer") as refused:
        await pages(found, sort="ready")
    assert refused.value.code is Code.INVALID_ARGUMENT
    assert len((await pages(found, sort="ready", search="00000"))[0]) == 10


@pytest.mark.parametrize("wanted", [{"sort": "color"}, {"sort": "ready", "after": "nonsense"}])
async def test_no_such_order_and_no_such_page(wanted: dict[str, str]) -> None:
    found, _ = listing(some(3))
    with pytest.raises(KernelError) as refused:
        await found.find(Wanted("default", **wanted))
    assert refused.value.code is Code.INVALID_ARGUMENT


async def test_a_page_of_a_hundred_thousand_topics_is_quick() -> None:
    topics = some(100_000)
    found, survey = listing(topics)
    for wanted in ({"sort": "-ready", "search": "9"}, {"sort": "name"}, {"search": "0123"}):
        used = []
        for _ in range(3):
            begun = time.process_time()
            page = await found.find(Wanted("default", **wanted))
            used.append(time.process_time() - begun)
        assert page.topics
        assert min(used) <= PAGE_CPU_S, (wanted, used)
    assert survey.looked == 0, "so many are not surveyed for a page"
