"""Totals of a cluster at a gateway: what each of its processes has counted, added up."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from starlette.requests import Request

from gateway.admin.http.callers import OPERATOR, Caller, set_caller
from gateway.admin.metrics import totals_elsewhere
from gateway.admin.metrics.history import STEP_MS, TENANTS_MAX, History
from gateway.admin.metrics.tenant_totals import TenantTotals
from gateway.admin.metrics.totals_elsewhere import (
    PROCESSES_MAX,
    Figures,
    Missing,
    Told,
    TotalsElsewhere,
    answer_totals,
)
from gateway.admin.resources.history import HistoryRoutes
from kernel.common.errors import KernelError
from kernel.remote.mesh.questions import Silent
from tests.gateway.test_history import Clock, Topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Scope

TENANTS_OWN = Caller(SimpleNamespace(allows=lambda *_asked: False))  # type: ignore[arg-type]
"""It administers a tenant, and not the node."""

Said = dict[int, dict[str, Figures] | bytes | str]
"""By store: what it answers, bytes that are no answer, or why it does not."""


class Stores:
    """Stand in for `ask_stores`, and for the other gateways."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told: Said = {}
        self.gateways: dict[str, dict[str, Figures] | str] = {}
        self.leaders = {10: 1, 11: 2}
        """Store that leads, by group."""
        monkeypatch.setattr(totals_elsewhere, "ask_stores", self.ask_stores)
        table = SimpleNamespace(groups=(10, 11), of=lambda group: self.leaders[group])
        leaders: Any = SimpleNamespace(table=table)
        gateways: Any = SimpleNamespace(ask=self.ask_gateways)
        self.totals = TotalsElsewhere(leaders, gateways)

    async def ask_stores(
        self, _leaders: object, _kind: str, _asked: bytes, _s: float, heard: Callable[..., None]
    ) -> dict[int, str]:
        silent = {}
        for number, told in self.told.items():
            if isinstance(told, str):
                silent[number] = told
                continue
            answer = told
            if not isinstance(answer, bytes):
                answer = msgspec.msgpack.encode(Told(f"store {number}", answer))
            try:
                heard(number, answer)
            except KernelError as error:
                silent[number] = error.message
        return silent

    async def ask_gateways(
        self, _kind: str, _asked: bytes, _s: float, heard: Callable[..., None]
    ) -> list[Silent]:
        for name, told in self.gateways.items():
            if not isinstance(told, str):
                heard(msgspec.msgpack.encode(Told(f"gateway {name}", told)))
        said = self.gateways.items()
        return [Silent(name, told) for name, told in said if isinstance(told, str)]

    async def figures(self, told: Said) -> dict[str, Any]:
        self.told = told
        return {name: dict(each) for name, each in (await self.totals.ask()).items()}


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> Stores:
    return Stores(monkeypatch)


async def test_counters_grow_by_what_each_store_says_more_and_never_fall(stores: Stores) -> None:
    first = await stores.figures({1: {"a": Figures(100, 90, 80, 5, 1)}, 2: {}})
    assert first == {"a": {"published": 0, "delivered": 0, "acked": 0, "ready": 5, "leased": 1}}
    found = await stores.figures(
        {1: {"a": Figures(110, 90, 81, 4, 0)}, 2: {"a": Figures(3, 2, 1, 7, 2)}}
    )
    assert found["a"] == {"published": 13, "delivered": 2, "acked": 2, "ready": 11, "leased": 2}
    # The first has begun anew: it tells less, then of a tenant that it had not met since.
    found = await stores.figures({1: {}, 2: {"a": Figures(3, 2, 1, 0, 0)}})
    assert found["a"]["published"] == 13
    found = await stores.figures(
        {1: {"a": Figures(4, 0, 0, 0, 0)}, 2: {"a": Figures(5, 2, 1, 0, 0)}}
    )
    assert found["a"]["published"] == 19


async def test_without_a_store_that_leads_nobody_knows_what_waits_and_it_is_named(
    stores: Stores,
) -> None:
    await stores.figures({1: {"a": Figures(1, 0, 0, 1, 0)}, 2: {"a": Figures(1, 0, 0, 1, 0)}})
    found = await stores.figures({1: {"a": Figures(3, 0, 0, 1, 0)}, 2: "it is gone"})
    assert found["a"]["published"] == 2
    assert not stores.totals.is_whole
    assert stores.totals.silent == [Missing("store 2", "store 2: it is gone")]
    found = await stores.figures(
        {1: {"a": Figures(3, 0, 0, 1, 0)}, 2: {"a": Figures(9, 0, 0, 0, 0)}}
    )
    assert (found["a"]["published"], found["a"]["ready"]) == (10, 1)
    assert stores.totals.is_whole
    await stores.figures({1: b"\x81\xa1a\x93\x01", 2: {}})
    assert [each.why for each in stores.totals.silent] == [
        "store 1: its answer cannot be read by this version"
    ]


async def test_a_store_that_leads_nothing_any_more_is_not_missed(stores: Stores) -> None:
    stores.leaders = {10: 1, 11: 1}
    found = await stores.figures({1: {"a": Figures(3, 0, 0, 4, 0)}, 2: "it is gone"})
    assert found["a"]["ready"] == 4
    assert stores.totals.silent == []


async def test_transient_topics_of_other_gateways_are_part_of_it(stores: Stores) -> None:
    stores.gateways = {"north": {"a": Figures(1, 0, 0, 2, 0)}, "south": "it is of an older version"}
    await stores.figures({1: {"a": Figures(5, 0, 0, 1, 0)}})
    stores.gateways["north"] = {"a": Figures(8, 0, 0, 3, 0)}
    found = await stores.figures({1: {"a": Figures(6, 0, 0, 1, 0)}})
    assert (found["a"]["published"], found["a"]["ready"]) == (8, 4)
    assert stores.totals.silent == [
        Missing("a gateway", "gateway south: it is of an older version")
    ]


async def test_what_nobody_tells_any_more_is_forgotten(stores: Stores) -> None:
    for number in range(PROCESSES_MAX + 10):
        stores.gateways = {f"g{number}": {f"tenant {number}": Figures(1, 0, 0, 0, 0)}}
        found = await stores.figures({})
    assert len(found) == PROCESSES_MAX
    assert f"tenant {PROCESSES_MAX + 9}" in found


async def test_the_history_of_a_gateway_has_what_the_stores_lead(stores: Stores) -> None:
    clock, topics = Clock(), Topics()
    own = TenantTotals()
    topics.tenants["a"] = own
    history = History(topics, None, clock, stores.totals)  # type: ignore[arg-type]
    for published, ready in ((10, 5), (60, 8)):
        own.now["published"] = published
        own.ready = 1
        stores.told = {1: {"a": Figures(published, 0, 0, ready, 0), "b": Figures(1, 0, 0, 0, 0)}}
        clock.ms += STEP_MS
        await history.take()
    _, series = history.of_tenant("a")
    assert series["published"][-1] == 10.0
    assert series["ready"][-2:] == [6, 9]
    assert history.of_tenant("b")[1]["ready"][-1] == 0
    assert history.of_tenant(None)[1]["ready"][-2:] == [6, 9]
    assert history.silent == []


async def test_totals_of_all_are_of_those_too_that_have_no_series(stores: Stores) -> None:
    clock, topics = Clock(), Topics()
    history = History(topics, None, clock, stores.totals)  # type: ignore[arg-type]
    tenants = {f"t{number}": Figures(0, 0, 0, 1, 0) for number in range(TENANTS_MAX + 50)}
    stores.told = {1: tenants}
    clock.ms += STEP_MS
    await history.take()
    assert history.of_tenant(None)[1]["ready"][-1] == TENANTS_MAX + 50


async def test_what_waits_is_unknown_while_no_store_has_answered_yet(stores: Stores) -> None:
    clock, topics = Clock(), Topics()
    topics.tenants["a"] = TenantTotals()
    topics.tenants["a"].ready = 3
    history = History(topics, None, clock, stores.totals)  # type: ignore[arg-type]
    stores.told = {1: "it is gone", 2: "it is gone"}
    clock.ms += STEP_MS
    await history.take()
    for tenant in (None, "a"):
        assert history.of_tenant(tenant)[1]["ready"][-1] is None


@pytest.mark.parametrize(
    ("caller", "without"),
    [
        (OPERATOR, ["store 2: no way to 10.0.0.2", "gateway 10.0.0.3:7000: it is late"]),
        (TENANTS_OWN, ["store 2", "a gateway"]),
    ],
)
async def test_only_who_administers_the_node_is_told_why_a_process_is_missing(
    stores: Stores, caller: Caller, without: list[str]
) -> None:
    history = History(Topics(), None, Clock(), stores.totals)  # type: ignore[arg-type]
    stores.told = {2: "no way to 10.0.0.2"}
    stores.gateways = {"10.0.0.3:7000": "it is late"}
    await history.take()
    tenants = SimpleNamespace(of=lambda _request: "acme")
    routes = HistoryRoutes(history, None, tenants)  # type: ignore[arg-type]
    scope: Scope = {"type": "http", "query_string": b"tenant=acme", "headers": []}
    set_caller(scope, caller)
    told = await routes.show_history(Request(scope))
    assert json.loads(bytes(told.body))["without"] == without


class Answers:
    def serve(self, _kind: str, answer: Callable[..., Any]) -> None:
        self.answer = answer


async def test_a_process_tells_all_its_tenants_and_counts_seldom_if_that_takes_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topics, answers = Topics(), Answers()
    fresh: list[int] = []

    async def look(fresh_ms: int = 0) -> None:
        fresh.append(fresh_ms)

    monkeypatch.setattr(topics, "look", look)
    for number in range(300):
        totals = topics.tenants[f"t{number}"] = TenantTotals()
        totals.now["published"] = number
    answer_totals(answers, topics, "store 1")  # type: ignore[arg-type]
    told = msgspec.msgpack.decode(await answers.answer(b""), type=Told)
    assert (told.process, len(told.tenants)) == ("store 1", 300)
    assert told.tenants["t10"].published == 10
    topics.seen = 100_000
    await answers.answer(b"")
    assert fresh[1] > 10 * fresh[0] > 0
