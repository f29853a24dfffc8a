"""Live messages for very many subscribers: some of them in each turn of the event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from adapters.memory import GatewayMemory, Pool
from adapters.mqtt.codec.encoder import encode
from adapters.mqtt.codec.packet_types import MQTT_5
from adapters.mqtt.codec.packets import Connect, FilterOptions, Publish, Subscribe
from adapters.mqtt.codec.topic_filter import parse_filter
from adapters.mqtt.delivery.inbox import Inbox
from adapters.mqtt.subscriptions import live as live_module
from adapters.mqtt.subscriptions import subscription as subscription_module
from adapters.mqtt.subscriptions.live import LiveRouter
from adapters.mqtt.subscriptions.subscription import Options, Subscribed, Way
from kernel.store.drivers.system import SystemClock
from tests.adapters.mqtt.broker import Broker, eventually, serving

TOGETHER = 4
SUBSCRIBERS = 3 * TOGETHER + 1


def few_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message for more than TOGETHER goes to so many in each turn."""
    for module in (live_module, subscription_module):
        monkeypatch.setattr(module, "FAN_OUT_TOGETHER_MAX", TOGETHER)


class Message:
    """Stands for a `View`."""

    size_bytes, ttl_ms, published_ms, publisher = 100, 0, 0, 0

    def __init__(self, slot: bytes, _: object) -> None:
        self.slot = slot

    def expired(self, _: int) -> bool:
        return False

    def frame(self, *_: object) -> tuple[bytes, bytes]:
        return (self.slot, b"")


class Receiver:
    """`LiveReceiver`."""

    publisher = 1

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.subscription = Subscribed("a", parse_filter("a"), Options(0), Way.LIVE, MQTT_5)

    def live(self, frame: Any, *_: object) -> None:
        self.got.append(frame[0])

    def live_single(self, view: Any, _: object) -> None:
        self.got.append(view.slot)


class Tree:
    def watch(self, tenant: str, pattern: str, sink: object, tag: object) -> Tree:
        del tenant, pattern, sink
        self.tag = tag
        return self

    def cancel(self) -> None:
        pass


class Host:
    """Of a publisher."""

    def __init__(self) -> None:
        self.holds: set[str] = set()
        self.hold_reading = self.holds.add
        self.release_reading = self.holds.discard


class World:
    """A router, its event loop, and receivers of one pattern."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(live_module, "View", Message)
        few_together(monkeypatch)
        self.soon: list[Callable[[], None]] = []
        self.tree = Tree()
        self.router = LiveRouter(
            cast("Any", self.tree), cast("Any", None), SystemClock(), self.soon.append
        )
        self.receivers = [self.join(single=number == 2) for number in range(SUBSCRIBERS)]

    def join(self, *, single: bool = False) -> Receiver:
        receiver = Receiver()
        self.again(receiver, single=single)
        return receiver

    def again(self, receiver: Receiver, *, single: bool) -> None:
        self.router.join("t", cast("Any", receiver), receiver.subscription, single=single)

    def leave(self, receiver: Receiver) -> None:
        self.router.leave(cast("Any", receiver), receiver.subscription)

    def publish(self, *slots: bytes) -> None:
        self.router.published_live(cast("Any", self.tree), slots)

    def turn(self) -> int:
        """How many got something."""
        before = [len(each.got) for each in self.receivers]
        callbacks, self.soon[:] = list(self.soon), []
        for each in callbacks:
            each()
        pairs = zip(before, self.receivers, strict=True)
        return sum(len(each.got) > had for had, each in pairs)

    def end(self) -> None:
        while self.soon:
            assert self.turn() <= TOGETHER


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_so_many_get_it_in_a_turn_and_each_has_all_in_order(world: World) -> None:
    world.publish(b"1")
    assert world.turn() == TOGETHER
    world.publish(b"2")
    world.publish(b"3")
    assert world.turn() == TOGETHER
    world.end()
    assert [each.got for each in world.receivers] == [[b"1", b"2", b"3"]] * SUBSCRIBERS
    assert world.router.waiting_bytes == 0
    assert [world.turn(), len(world.soon)] == [0, 0]


def test_few_get_it_at_once(world: World) -> None:
    for each in world.receivers[TOGETHER:]:
        world.leave(each)
    world.publish(b"1")
    assert [each.got for each in world.receivers[:TOGETHER]] == [[b"1"]] * TOGETHER
    assert not world.soon


def test_who_joins_hears_what_came_afterwards_and_who_leaves_what_came_before(
    world: World,
) -> None:
    world.publish(b"1")
    world.turn()
    world.publish(b"2")
    joined = world.join()
    leaver = world.receivers[-1]
    assert leaver.got == []
    world.leave(leaver)
    assert leaver.got == [b"1", b"2"]
    world.publish(b"3")
    world.end()
    assert joined.got == [b"3"]
    assert leaver.got == [b"1", b"2"]
    assert [each.got for each in world.receivers[:-1]] == [[b"1", b"2", b"3"]] * (SUBSCRIBERS - 1)


@pytest.mark.parametrize("place", [0, -1])
def test_who_is_served_in_another_way_from_now_on_misses_nothing(world: World, place: int) -> None:
    world.publish(b"1")
    world.turn()
    world.publish(b"2")
    world.again(world.receivers[place], single=True)
    world.publish(b"3")
    world.turn()
    world.again(world.receivers[place], single=False)
    world.end()
    assert [each.got for each in world.receivers] == [[b"1", b"2", b"3"]] * SUBSCRIBERS


def test_what_waits_is_bounded_and_nothing_of_it_is_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "FAN_OUT_WAITING_BYTES_MAX", 20_000)
    host, slots = Host(), [b"%d" % number for number in range(100)]
    for slot in slots:
        world.publish(slot)
        world.router.publishes(cast("Any", host))
        assert world.router.waiting_bytes <= 20_000
    assert host.holds
    while world.soon:
        world.turn()
    assert not host.holds
    assert [each.got for each in world.receivers] == [slots] * SUBSCRIBERS


async def test_others_are_heard_while_very_many_get_a_message(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_together(monkeypatch)
    turn, got = 0, []
    live = Inbox.live

    def counting(self: Inbox, *arguments: Any) -> None:
        got.append(turn)
        live(self, *arguments)

    monkeypatch.setattr(Inbox, "live", counting)
    takers = [await broker.connect(f"taker-{number}") for number in range(SUBSCRIBERS)]
    for taker in takers:
        await taker.subscribe("a")
    giver = await broker.connect("giver")
    giver.send(Publish("a", b"x"))
    while len(got) < SUBSCRIBERS:
        turn += 1
        await asyncio.sleep(0)
    assert max(got.count(each) for each in got) <= TOGETHER
    assert [(await taker.take()).payload for taker in takers] == [b"x"] * SUBSCRIBERS


async def test_who_does_not_read_is_dropped_before_the_budget_is_exceeded_by_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_together(monkeypatch)
    body, budget = bytes(400_000), 1_500_000
    memory = GatewayMemory(SystemClock(), output_bytes_max=budget)
    held: list[int] = []
    relieve = Pool._relieve

    def seen(self: Pool) -> None:
        held.append(self.bytes)
        relieve(self)

    monkeypatch.setattr(Pool, "_relieve", seen)
    async with serving(tmp_path, memory=memory) as broker:
        peers = [_mute(broker, number) for number in range(4 * SUBSCRIBERS)]
        await eventually(
            lambda: sum(each.subscription_count for each in broker.adapter.holders()) == len(peers)
        )
        giver = await broker.connect("giver")
        while not any(memory.refused.values()):
            await giver.publish("a", body, qos=1)
        assert budget < max(held) <= 2 * budget + TOGETHER * (len(body) + 100)
        await giver.ping()
        for peer in peers:
            peer.close()


def _mute(broker: Broker, number: int) -> socket.socket:
    """A client that subscribes and reads nothing."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    peer.connect(("127.0.0.1", broker.port))
    connect = Connect(f"mute-{number}", MQTT_5, username="guest", password=b"guest")
    peer.sendall(encode(connect, MQTT_5))
    peer.sendall(encode(Subscribe(1, (FilterOptions("a", 0),)), MQTT_5))
    return peer
