"""Totals of a cluster at a gateway: what each store has counted, added up."""

from __future__ import annotations

import json
from math import isnan
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from starlette.requests import Request

from gateway.admin.http.callers import OPERATOR, Caller, set_caller
from gateway.admin.metrics import store_totals
from gateway.admin.metrics.history import STEP_MS, History
from gateway.admin.metrics.store_totals import (
    TENANTS_MAX,
    Figures,
    StoreTotals,
    answer_totals,
)
from gateway.admin.metrics.tenant_totals import TenantTotals
from gateway.admin.resources.history import HistoryRoutes
from kernel.common.errors import KernelError
from tests.gateway.test_history import Clock, Topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Scope

Told = dict[int, dict[str, Figures] | bytes | str]
"""By store: what it answers, bytes that are no answer, or why it does not."""


TENANTS_OWN = Caller(SimpleNamespace(allows=lambda *_asked: False))  # type: ignore[arg-type]
"""It administers a tenant, and not the node."""


class Stores:
    """Stand in for `ask_stores`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told: Told = {}
        monkeypatch.setattr(store_totals, "ask_stores", self.ask)
        self.totals = StoreTotals(None)  # type: ignore[arg-type]  # nobody is asked

    async def ask(
        self, _leaders: object, _kind: str, _asked: bytes, _s: float, heard: Callable[..., None]
    ) -> dict[int, str]:
        silent = {}
        for number, told in self.told.items():
            if isinstance(told, str):
                silent[number] = told
                continue
            try:
                heard(number, told if isinstance(told, bytes) else msgspec.msgpack.encode(told))
            except KernelError as error:
                silent[number] = error.message
        return silent

    async def figures(self, told: Told) -> dict[str, Any]:
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
    # The first has begun anew; a tenant that is not told for once has not.
    found = await stores.figures({1: {"a": Figures(4, 0, 0, 0, 0)}, 2: {}})
    assert found["a"]["published"] == 17
    found = await stores.figures(
        {1: {"a": Figures(4, 0, 0, 0, 0)}, 2: {"a": Figures(5, 2, 1, 0, 0)}}
    )
    assert found["a"]["published"] == 19


async def test_without_a_store_nobody_knows_what_waits_and_the_store_is_named(
    stores: Stores,
) -> None:
    await stores.figures({1: {"a": Figures(1, 0, 0, 1, 0)}, 2: {"a": Figures(1, 0, 0, 1, 0)}})
    found = await stores.figures({1: {"a": Figures(3, 0, 0, 1, 0)}, 2: "it is gone"})
    assert found["a"]["published"] == 2
    assert isnan(found["a"]["ready"])
    assert stores.totals.silent == {2: "it is gone"}
    found = await stores.figures(
        {1: {"a": Figures(3, 0, 0, 1, 0)}, 2: {"a": Figures(9, 0, 0, 0, 0)}}
    )
    assert (found["a"]["published"], found["a"]["ready"]) == (10, 1)
    await stores.figures({1: b"\x81\xa1a\x93\x01", 2: {}})
    assert stores.totals.silent == {1: "its answer cannot be read by this version"}


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
    assert history.silent == {}


@pytest.mark.parametrize(
    ("caller", "without"), [(OPERATOR, "store 2: no way to 10.0.0.2"), (TENANTS_OWN, "store 2")]
)
async def test_only_who_administers_the_node_is_told_why_a_store_is_missing(
    stores: Stores, caller: Caller, without: str
) -> None:
    history = History(Topics(), None, Clock(), stores.totals)  # type: ignore[arg-type]
    stores.told = {2: "no way to 10.0.0.2"}
    await history.take()
    tenants = SimpleNamespace(of=lambda _request: "acme")
    routes = HistoryRoutes(history, None, tenants)  # type: ignore[arg-type]
    scope: Scope = {"type": "http", "query_string": b"tenant=acme", "headers": []}
    set_caller(scope, caller)
    told = await routes.show_history(Request(scope))
    assert json.loads(bytes(told.body))["without"] == [without]


class Answers:
    def serve(self, _kind: str, answer: Callable[..., Any]) -> None:
        self.answer = answer


async def test_a_store_tells_its_tenants_and_of_very_many_those_with_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topics, answers = Topics(), Answers()
    fresh: list[int] = []

    async def look(fresh_ms: int = 0) -> None:
        fresh.append(fresh_ms)

    monkeypatch.setattr(topics, "look", look)
    for number in range(TENANTS_MAX + 10):
        totals = topics.tenants[f"t{number}"] = TenantTotals()
        totals.now["published"] = number
    answer_totals(answers, topics)  # type: ignore[arg-type]
    told = msgspec.msgpack.decode(await answers.answer(b""), type=dict[str, Figures])
    assert len(told) == TENANTS_MAX
    assert "t9" not in told
    assert told["t10"].published == 10
    topics.seen = 100_000
    await answers.answer(b"")
    assert fresh[1] > 10 * fresh[0] > 0
