"""A client of the topic tree, as an adapter would drive it, for tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from kernel.api import message as messages
from kernel.api.client import Client
from kernel.api.message import Ext
from kernel.api.model import DEFAULT_TENANT
from kernel.api.tree import (
    Belongings,
    Subscriber,
    SubscriberConsumer,
    SubscriberSpec,
    Subscription,
    Watch,
    Will,
)
from kernel.common.ports import Clock
from tests.simulator.peer import Draft, Peer, Recorder, Sent


class Stage(Protocol):
    """A store as a gateway sees it: a world's own, or from far away."""

    @property
    def client(self) -> Client:
        """Its client."""

    @property
    def clock(self) -> Clock:
        """Its clock."""

    def peer(self, name: str = "peer") -> Peer:
        """A new connection to it."""


def will_of(
    world: Stage, name: str, body: bytes, *, delay_ms: int = 0, retain: bool = False
) -> Will:
    """A will with this body."""
    parts = Draft(body, name=name).parts((1, 2), world.clock.wall_ms())
    return Will(name, b"".join(parts), delay_ms, retain)


class Listener:
    """A live route and what it heard."""

    def __init__(self, world: Stage, pattern: str) -> None:
        self.got: list[tuple[str, bytes]] = []
        self.watch = world.client.tree.watch(DEFAULT_TENANT, pattern, self, "tag")

    def published_live(self, watch: Watch, slots: Sequence[bytes]) -> None:
        assert watch.tag == "tag"
        for slot in slots:
            message = messages.decode(slot)
            self.got.append((message.ext[Ext.TREE_NAME].decode(), message.body))

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, body in self.got]


class SubscriberClient:
    """A subscriber and the connection that has it."""

    def __init__(self, world: Stage, peer: Peer) -> None:
        self._world = world
        self.peer = peer
        self.recorder = Recorder(world.client)
        self.lost = False
        self.subscriber: Subscriber
        self.consumer: SubscriberConsumer

    @staticmethod
    async def open(
        world: Stage,
        name: str,
        *,
        clean: bool = False,
        expiry_ms: int | None = None,
        will: Will | None = None,
        credit: int = 0,
        user: str = "",
        may_have: Callable[[Belongings], bool] | None = None,
    ) -> SubscriberClient:
        """Open a subscriber, and take what its subscriptions bring."""
        subscribed = SubscriberClient(world, world.peer(name))
        spec = SubscriberSpec(DEFAULT_TENANT, name, clean, expiry_ms, will, user, may_have)
        subscribed.subscriber = await world.client.tree.open(spec, subscribed)
        subscribed.consumer = subscribed.subscriber.consumer(
            subscribed.peer.session, subscribed.recorder
        )
        for each in subscribed.subscriber.subscriptions:
            subscribed.consumer.add(each, each)
        if credit:
            subscribed.consumer.grant(credit)
        return subscribed

    def taken_over(self, subscriber: Subscriber) -> None:
        assert subscriber is self.subscriber
        self.lost = True

    async def subscribe(self, pattern: str, share: str = "", options: bytes = b"") -> bool:
        subscription = Subscription(pattern, share)
        is_new = await self.subscriber.subscribe(subscription, options)
        self.consumer.add(subscription, subscription)
        return is_new

    async def leave(self, *, will: bool = False, expiry_ms: int | None = -1) -> None:
        """Close the connection."""
        self.consumer.cancel()
        self.peer.close()
        await self.subscriber.close(will=will, expiry_ms=expiry_ms)

    @property
    def bodies(self) -> list[bytes]:
        return self.recorder.bodies


async def tell(world: Stage, name: str, *bodies: bytes, retain: bool = False) -> Sent:
    """Publish messages to a name; returns once that is answered."""
    found = world.client.tree.to(DEFAULT_TENANT, name, retain=retain)
    peer = world.peer()
    if not found.count:
        return await peer.publish(found)
    return await peer.publish(found, *(Draft(body, name=name) for body in bodies))


async def retained(world: Stage, pattern: str) -> list[tuple[str, bytes]]:
    """(name, body) of the retained messages under a pattern."""
    found = await world.client.tree.retained(DEFAULT_TENANT, pattern, 1_000)
    decoded = [messages.decode(slot) for _age, slot in found]
    return [(each.ext[Ext.TREE_NAME].decode(), each.body) for each in decoded]
