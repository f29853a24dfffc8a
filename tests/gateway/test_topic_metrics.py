"""Metrics by topic, queue, group and tenant, as a scraper reads them."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open
from prometheus_client.parser import text_string_to_metric_families as read_plain

from gateway.admin.metrics import series_text, tenant_totals, topic_metrics, topic_selection
from gateway.admin.metrics.series_text import (
    Kind,
    MetricHead,
    SeriesPieces,
    TextForm,
    write,
)
from gateway.admin.metrics.topic_metrics import TopicMetrics
from gateway.config.schema import Metrics
from gateway.process import slices
from kernel.api.client import DeleteTopic
from kernel.api.model import DEFAULT_TENANT, TopicOptions
from kernel.common.errors import KernelError
from tests.gateway.serving import Process
from tests.simulator.world import World, simulated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

OPEN = {"Accept": "application/openmetrics-text; version=1.0.0"}


def metrics_of(world: World, *patterns: str, top: int = 0) -> TopicMetrics:
    settings = Metrics(topics=list(patterns), top=top)
    return TopicMetrics(world.opened.store.replicas, world.clock, settings)


async def text_of(parts: AsyncIterator[bytes]) -> str:
    return b"".join([each async for each in parts]).decode()


async def samples(parts: AsyncIterator[bytes]) -> dict[str, float]:
    """By name and labels, in order of the text; each once."""
    text = await text_of(parts)
    found: dict[str, float] = {}
    for family in read_open(text + "# EOF\n"):
        for each in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(each.labels.items()))
            key = f"{each.name}{{{labels}}}"
            assert key not in found
            found[key] = each.value
    return found


async def shown(metrics: TopicMetrics) -> list[str]:
    """Topics that /metrics shows."""
    found = await samples(metrics.totals(TextForm.OPEN_METRICS, names=True))
    prefix = "weir_topic_messages{tenant=default,topic="
    return [each.removeprefix(prefix)[:-1] for each in found if each.startswith(prefix)]


async def fill(world: World, counts: Iterable[tuple[str, int]]) -> None:
    peer = world.peer()
    for name, messages in counts:
        topic = await peer.topic(name)
        await peer.publish(topic, *[b"x"] * messages)


@simulated()
async def test_every_family_reads_as_openmetrics_and_as_plain_text(world: World) -> None:
    metrics = metrics_of(world, "*:*")
    await fill(world, (("orders", 3), ('od"d\\na\nme', 1)))
    topic = world.client.topic(DEFAULT_TENANT, "orders")
    assert topic is not None
    consumer = world.peer().attach(topic, credit=2)
    await consumer.wait_for(2)
    odd = world.client.topic(DEFAULT_TENANT, 'od"d\\na\nme')
    assert odd is not None
    await world.peer().attach(odd, credit=1).wait_for(1)  # two series of the histogram
    found = await samples(metrics.totals(TextForm.OPEN_METRICS, names=True))
    at = "tenant=default,topic=orders"
    group = f"group=default,{at}"
    assert found[f"weir_topic_published_messages_total{{{at}}}"] == 3
    assert found[f"weir_group_ready_messages{{{group}}}"] == 1
    assert found[f"weir_group_leased_messages{{{group}}}"] == 2
    assert found[f"weir_group_delivered_messages_total{{{group}}}"] == 2
    assert found[f"weir_group_wait_seconds_count{{{group}}}"] == 2
    assert found[f"weir_queue_next_offset{{queue=0,{at}}}"] == 3
    assert f"weir_group_dead_lettered_messages_total{{group=default,reason=expired,{at}}}" in found
    assert 'weir_topic_messages{tenant=default,topic=od"d\\na\nme}' in found

    plain = await text_of(metrics.totals(TextForm.PLAIN, names=True))
    assert "# TYPE weir_topic_published_bytes_total counter" in plain
    names = {each.name for family in read_plain(plain) for each in family.samples}
    assert names == {each.partition("{")[0] for each in found}


@simulated()
async def test_without_names_there_are_totals_of_tenants_and_no_topic(world: World) -> None:
    metrics = metrics_of(world, "*:*", top=5)
    await metrics.look()
    await fill(world, (("orders", 3),))
    text = await text_of(metrics.totals(TextForm.PLAIN, names=False))
    assert "orders" not in text
    assert 'weir_tenant_published_messages_total{tenant="default"} 3' in text


@simulated()
async def test_totals_of_a_tenant_never_fall(world: World) -> None:
    metrics = metrics_of(world)
    await metrics.look()
    await fill(world, (("a", 3), ("b", 4)))
    key = "weir_tenant_published_messages_total{tenant=default}"
    assert (await samples(metrics.totals(TextForm.OPEN_METRICS, names=False)))[key] == 7
    await world.client.administer(DeleteTopic(DEFAULT_TENANT, "b"))
    await fill(world, (("c", 1),))
    assert (await samples(metrics.totals(TextForm.OPEN_METRICS, names=False)))[key] == 8


@simulated()
async def test_what_was_there_before_the_process_began_is_no_traffic_of_it(world: World) -> None:
    await fill(world, (("a", 3),))
    await world.restart()
    metrics = metrics_of(world)
    await metrics.look()
    found = await samples(metrics.totals(TextForm.OPEN_METRICS, names=False))
    assert found["weir_tenant_published_messages_total{tenant=default}"] == 0
    assert found["weir_tenant_topic_messages{tenant=default}"] == 3


@simulated()
async def test_tenants_above_the_most_are_totalled_together(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenant_totals, "TENANTS_MAX", 0)
    await fill(world, (("a", 3),))
    found = await samples(metrics_of(world).totals(TextForm.OPEN_METRICS, names=False))
    assert found["weir_tenant_topic_messages{tenant=__other}"] == 3


@simulated()
async def test_the_busiest_topics_keep_their_places(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_selection, "PLACE_MS", 60_000)
    metrics = metrics_of(world, top=2)
    await fill(world, (("a", 1), ("b", 5), ("c", 9)))
    assert await shown(metrics) == ["b", "c"]
    await fill(world, (("a", 50),))
    assert await shown(metrics) == ["b", "c"]
    await asyncio.sleep(60)
    assert await shown(metrics) == ["a", "c"]
    await fill(world, (("b", 6),))
    assert await shown(metrics) == ["a", "c"]
    await world.client.administer(DeleteTopic(DEFAULT_TENANT, "a"))
    assert await shown(metrics) == ["b", "c"]


@simulated()
async def test_patterns_choose_topics_up_to_a_bound_and_keep_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_selection, "SELECTED_MAX", 2)
    metrics = metrics_of(world, "default:or*")
    await fill(world, (("order", 1), ("orbit", 1), ("other", 9)))
    assert await shown(metrics) == ["orbit", "order"]
    await fill(world, (("oracle", 99),))
    assert await shown(metrics) == ["orbit", "order"]
    found = await samples(metrics.totals(TextForm.OPEN_METRICS, names=False))
    assert found["weir_metrics_topics_left_out{}"] == 1


@simulated()
async def test_what_a_client_keeps_to_itself_is_no_series(world: World) -> None:
    await world.peer().topic("generated-1", TopicOptions(hidden=True))
    metrics = metrics_of(world, "*:*", top=5)
    assert await shown(metrics) == []
    text = await text_of(metrics.detailed(TextForm.PLAIN, ["topic"], None, None))
    assert "generated" not in text


@simulated()
async def test_detailed_metrics_are_filtered_by_family_tenant_and_name(world: World) -> None:
    metrics = metrics_of(world)
    await fill(world, (("a1", 1), ("a2", 2), ("b", 3)))
    found = await samples(metrics.detailed(TextForm.OPEN_METRICS, ["topic"], DEFAULT_TENANT, "a*"))
    key = "weir_topic_messages{tenant=default,topic=%s}"
    assert {key % "a1", key % "a2"} <= set(found)
    assert not [each for each in found if "topic=b" in each or each.startswith("weir_group")]
    assert not await samples(metrics.detailed(TextForm.OPEN_METRICS, ["depth"], "acme", None))
    for families in ([], ["topic", "tropic"]):
        with pytest.raises(KernelError, match="there are topic, queue, depth"):
            metrics.detailed(TextForm.PLAIN, families, None, None)


@simulated()
async def test_so_many_detailed_scrapes_at_once_and_no_more(world: World) -> None:
    metrics = metrics_of(world)
    await fill(world, (("a", 1),))
    under_way = [
        metrics.detailed(TextForm.PLAIN, ["topic"], None, None)
        for _ in range(topic_metrics.DETAILED_MAX)
    ]
    for each in under_way:
        await anext(aiter(each))
    with pytest.raises(KernelError, match="under way"):
        metrics.detailed(TextForm.PLAIN, ["topic"], None, None)
    for each in under_way:
        assert await text_of(each)
    assert await text_of(metrics.detailed(TextForm.PLAIN, ["topic"], None, None))


@simulated()
async def test_the_event_loop_has_its_turn_during_a_scrape(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0)
    monkeypatch.setattr(slices, "SHARE", 0)
    monkeypatch.setattr(series_text, "SLICE_LINES", 16)
    await fill(world, ((f"t{number}", 0) for number in range(64)))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        counting = tasks.create_task(count())
        await text_of(metrics_of(world).detailed(TextForm.PLAIN, ["topic"], None, None))
        counting.cancel()
    assert turns >= 64 // topic_metrics.SLICE_TOPICS + 4 * 64 // 16


async def test_series_are_held_without_an_object_each_and_let_go_as_they_are_written() -> None:
    """Else the cycle collector looks at all of them, while publishers wait."""
    columns = series_text.columns_of(
        [MetricHead("one", Kind.GAUGE, "1"), MetricHead("two", Kind.GAUGE, "2")]
    )
    number = 10 * series_text.SLICE_LINES + 1
    gc.collect()
    before = len(gc.get_objects())
    series = SeriesPieces((f'name="{each}"', (each, each + 0.5)) for each in range(number))
    assert len(gc.get_objects()) - before < number // 10
    text = await text_of(write(columns, series, TextForm.PLAIN))
    assert f'one{{name="{number - 1}"}} {number - 1}\n' in text
    assert 'two{name="0"} 0.5\n' in text
    assert text.count("\n") == 2 * number + 4
    assert all(piece == ([], []) for piece in series.pieces)


@simulated()
async def test_depths_follow_topics_that_fill_empty_and_go(world: World) -> None:
    metrics = metrics_of(world)
    await fill(world, (("a", 3), ("b", 4)))
    a, b = (world.client.topic(DEFAULT_TENANT, name) for name in ("a", "b"))
    assert a is not None
    assert b is not None
    await metrics.look()
    depths = metrics.depths
    assert depths == {a.id: (3, 0), b.id: (4, 0)}
    consumer = world.peer().attach(a, credit=3)
    await consumer.wait_for(3)
    await world.client.administer(DeleteTopic(DEFAULT_TENANT, "b"))
    await metrics.look()
    assert depths == {a.id: (0, 3)}
    await world.client.administer(DeleteTopic(DEFAULT_TENANT, "a"))
    await metrics.look()
    assert depths == {}


def test_a_node_shows_topics_to_whoever_signs_in(node: Process) -> None:
    made = node.api("POST", "/topics", {"name": "seen"})
    assert made.status == 201
    found = node.http("GET", "/metrics/detailed?family=topic&name=seen", headers=OPEN)
    assert found.status == 200
    (family, *_) = read_open(found.body.decode())
    assert family.samples[0].labels == {"tenant": "default", "topic": "seen"}
    for headers, is_shown in (({}, True), (OPEN, True)):
        body = node.http("GET", "/metrics", headers=headers).body.decode()
        assert ('topic="' in body) is is_shown
    names = [each.name for each in read_open(body)]
    assert len(names) == len(set(names))
    assert {"weir_store_commits", "weir_tenant_topics", "weir_connections"} <= set(names)
    body = node.http("GET", "/metrics", token=None).body.decode()
    assert 'topic="' not in body
    assert "weir_tenant_topics" in body


def test_detailed_metrics_ask_for_the_node_and_name_their_families(node: Process) -> None:
    assert node.http("GET", "/metrics/detailed?family=topic", token=None).status == 401
    assert node.http("GET", "/metrics", token="wrong").status == 401
    found = node.http("GET", "/metrics/detailed")
    assert (found.status, found.json["error"]["code"]) == (400, "invalid_argument")
