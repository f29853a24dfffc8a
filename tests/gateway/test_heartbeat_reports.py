"""What a gateway tells the manager, and what it does with the answer; without sockets."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from adapters.amqp.origin import ORIGIN_BYTE
from adapters.base import AdapterStatistics
from gateway.config.declared import declared_in
from gateway.config.loading import load
from gateway.config.schema import Settings
from gateway.config.tenants import settings_word
from gateway.reporting.heartbeat_reports import ABSENT_REPORTS, HeartbeatReporter
from kernel.cluster.messages import (
    CLIENT_NAME_LENGTH_MAX,
    ClientMove,
    ConsumingReport,
    HeartbeatReport,
    Orders,
    Role,
    Task,
)
from kernel.common.errors import Code, KernelError
from kernel.remote.served_topics import Consumed, Consumers, Produced

if TYPE_CHECKING:
    from adapters.moving import ConsumersByKey

CONSUMERS = Consumers("acme", "t", "g", ORIGIN_BYTE)
ROLE = ("node.role=gateway", "node.cluster.peers=1@127.0.0.1:7400", "node.cluster.host=here")


def settings(*changes: str) -> Settings:
    return load(None, [*ROLE, *changes], environ={}).settings


class FakeAdapter:
    name = "amqp"

    def __init__(self, host: str = "127.0.0.1", staying: Mapping[str, int] | None = None) -> None:
        self._at = {"tcp": (host, 5672)}
        self._staying = staying or {}
        self.moved: list[tuple[int, Mapping[str, str], ConsumersByKey | None]] = []

    def addresses(self) -> Mapping[str, tuple[str, int]]:
        return self._at

    def statistics(self) -> AdapterStatistics:
        return AdapterStatistics(7, staying=self._staying)

    def move(
        self, amount: int, to: Mapping[str, str], consumers_by_key: ConsumersByKey | None = None
    ) -> int:
        self.moved.append((amount, to, consumers_by_key))
        return amount - 1


class FakeClusterAdmin:
    def __init__(self) -> None:
        self.heard: list[HeartbeatReport] = []
        self.answer: Orders | KernelError = Orders(False, [], [])

    async def send_report(self, told: HeartbeatReport) -> Orders:
        self.heard.append(told)
        if isinstance(self.answer, KernelError):
            raise self.answer
        return self.answer


class FakeClock:
    now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms


class World:
    def __init__(self, adapter: FakeAdapter, *changes: str) -> None:
        self.cluster_admin, self.clock = FakeClusterAdmin(), FakeClock()
        tasks = SimpleNamespace(
            produced=lambda _most: [Produced("acme", "t", 3)],
            consumed=lambda _most: [
                Consumed(CONSUMERS, 2),
                Consumed(CONSUMERS._replace(topic="u", origin=99), 1),
            ],
            consumers_by_key={CONSUMERS: {7: 2}}.__getitem__,
        )
        self.leaders = SimpleNamespace(bytes_moved=0)
        client: Any = SimpleNamespace(leaders=self.leaders, tasks=tasks)
        cluster_admin: Any = self.cluster_admin
        clock: Any = self.clock
        fakes: Any = [adapter]
        self.heartbeat_reporter = HeartbeatReporter(
            "gw", "p1", settings(*changes), client, fakes, cluster_admin, clock
        )


async def test_a_gateway_tells_its_clients_their_topics_and_where_it_is() -> None:
    world = World(FakeAdapter())
    await world.heartbeat_reporter.send_report()
    (told,) = world.cluster_admin.heard
    assert (told.name, told.process, told.label) == ("gw", "p1", "here")
    assert told.clients == {"amqp": 7}
    assert told.listeners == {"amqp.tcp": "127.0.0.1:5672"}
    assert told.tasks == [
        Task(Role.PRODUCE, "acme", "t", "", "", 3),
        Task(Role.CONSUME, "acme", "t", "g", "amqp", 2),
        Task(Role.CONSUME, "acme", "u", "g", "", 1),
    ]


@pytest.mark.parametrize(
    ("host", "changes", "place"),
    [
        ("0.0.0.0", (), "here:5672"),
        ("::1", (), "[::1]:5672"),
        (
            "127.0.0.1",
            ("amqp.listeners.tcp.advertised=mq.example.org:5672",),
            "mq.example.org:5672",
        ),
    ],
)
async def test_others_are_told_an_address_that_clients_can_reach(
    host: str, changes: tuple[str, ...], place: str
) -> None:
    world = World(FakeAdapter(host), *changes)
    assert world.heartbeat_reporter.report().listeners == {"amqp.tcp": place}


async def test_what_is_ordered_is_done_by_the_adapter_it_concerns() -> None:
    adapter = FakeAdapter()
    world = World(adapter)
    there = {"amqp.tcp": "other:5672", "mqtt.tcp": "other:1883"}
    moves = [ClientMove("amqp", 4, "p2", there), ClientMove("unknown", 1, "p2", there)]
    world.cluster_admin.answer = Orders(True, moves, ["p2"])
    await world.heartbeat_reporter.send_report()
    assert adapter.moved == [(4, {"tcp": "other:5672"}, None)]
    assert (world.heartbeat_reporter.moved, world.heartbeat_reporter.draining) == (3, True)
    world.cluster_admin.answer = Orders(False, [], ["p2"])
    await world.heartbeat_reporter.send_report()
    assert not world.heartbeat_reporter.draining
    assert world.cluster_admin.heard[1].moved == 3


async def test_a_move_for_a_topic_is_of_those_who_consume_it() -> None:
    adapter = FakeAdapter()
    world = World(adapter)
    hot = ConsumingReport("acme", "t", "g")
    world.cluster_admin.answer = Orders(
        False, [ClientMove("amqp", 4, "p2", {"amqp.tcp": "other:5672"}, hot)], ["p2"]
    )
    await world.heartbeat_reporter.send_report()
    assert adapter.moved == [(4, {"tcp": "other:5672"}, {7: 2})]


async def test_who_was_sent_to_a_gateway_that_is_gone_may_come_back() -> None:
    adapter = FakeAdapter()
    world = World(adapter)
    moves = [ClientMove("amqp", 1, name, {"amqp.tcp": f"{name}:5672"}) for name in ("p2", "p3")]
    world.cluster_admin.answer = Orders(True, moves, ["p2", "p3"])
    await world.heartbeat_reporter.send_report()
    (_, second, _), (_, third, _) = adapter.moved
    world.cluster_admin.answer = Orders(True, [], ["p3"])
    for _ in range(ABSENT_REPORTS - 1):
        await world.heartbeat_reporter.send_report()
    assert (second, third) == ({"tcp": "p2:5672"}, {"tcp": "p3:5672"})
    await world.heartbeat_reporter.send_report()
    assert (second, third) == ({}, {"tcp": "p3:5672"})


async def test_who_was_sent_away_may_come_back_once_the_gateway_is_not_drained_any_more() -> None:
    adapter = FakeAdapter()
    world = World(adapter)
    order = ClientMove("amqp", 1, "p2", {"amqp.tcp": "p2:5672"})
    world.cluster_admin.answer = Orders(True, [order], ["p2"])
    await world.heartbeat_reporter.send_report()
    world.cluster_admin.answer = Orders(False, [], ["p2"])
    await world.heartbeat_reporter.send_report()
    assert [to for _, to, _ in adapter.moved] == [{}]


async def test_a_manager_that_does_not_answer_changes_nothing() -> None:
    world = World(FakeAdapter())
    world.cluster_admin.answer = Orders(True, [], [])
    await world.heartbeat_reporter.send_report()
    world.cluster_admin.answer = KernelError(Code.UNAVAILABLE, "no leader of group 0")
    await world.heartbeat_reporter.send_report()
    assert world.heartbeat_reporter.draining
    assert world.heartbeat_reporter.problem == "no leader of group 0"
    world.cluster_admin.answer = Orders(True, [], [])
    await world.heartbeat_reporter.send_report()
    assert world.heartbeat_reporter.problem == ""


async def test_gateways_of_other_tenants_are_logged_once_whenever_they_change() -> None:
    world = World(FakeAdapter())
    unlike, alike = Orders(False, [], [], ["b"], 1), Orders(False, [], [])
    with capture_logs() as logs:
        for _ in range(3):
            world.cluster_admin.answer = unlike
            await world.heartbeat_reporter.send_report()
        assert (world.heartbeat_reporter.unlike, world.heartbeat_reporter.unlike_count) == (
            ("b",),
            1,
        )
        assert (
            world.heartbeat_reporter.unlike_reason()
            == "the settings tenants or limits are others at b"
        )
        # A new manager has not heard of all gateways when it answers first.
        world.cluster_admin.answer = alike
        await world.heartbeat_reporter.send_report()
        world.cluster_admin.answer = unlike
        await world.heartbeat_reporter.send_report()
        world.cluster_admin.answer = alike
        for _ in range(ABSENT_REPORTS):
            assert world.heartbeat_reporter.unlike_count == 1
            await world.heartbeat_reporter.send_report()
    assert (world.heartbeat_reporter.unlike_count, world.heartbeat_reporter.unlike_reason()) == (
        0,
        "",
    )
    assert [(each["log_level"], each["event"]) for each in logs] == [
        ("warning", "other gateways have other tenants or limits"),
        ("info", "all gateways have the same tenants and limits"),
    ]


async def test_more_gateways_of_other_tenants_than_are_named_are_counted() -> None:
    world = World(FakeAdapter())
    world.cluster_admin.answer = Orders(False, [], [], ["b", "c"], 9)
    await world.heartbeat_reporter.send_report()
    reason = "the settings tenants or limits are others at b, c and 7 others"
    assert world.heartbeat_reporter.unlike_reason() == reason


async def test_a_gateway_tells_a_word_for_its_tenants() -> None:
    world = World(FakeAdapter())
    assert (
        world.heartbeat_reporter.report().settings
        == settings_word(settings().tenants, declared_in(settings().protocols), settings().limits)
        != ""
    )


async def test_traffic_is_that_of_the_last_seconds() -> None:
    world = World(FakeAdapter())
    told = []
    for moved in (1_000_000, 2_000_000, 2_000_000, 500):
        world.clock.now_ms += 1_000
        world.leaders.bytes_moved = moved
        told.append(world.heartbeat_reporter.report().traffic)
    assert told[0] == 300_000
    assert told[1] > told[0] > 0
    # A connection that has closed takes its count along, which is not less than nothing.
    assert told[1] > told[2] > told[3] > 0


async def test_clients_that_keep_coming_back_are_named() -> None:
    world = World(FakeAdapter(staying={"x" * 500: 3}))
    (one,) = world.heartbeat_reporter.report().staying
    assert (one.kind, one.who, one.times) == ("amqp", "x" * CLIENT_NAME_LENGTH_MAX, 3)
