"""The topic tree behind the hostile network: names, live routes, retained messages, subscribers.

Who wants a name is known to the gateway at once, as with definitions that are loaded; everything
else is asked of the store. A live route's messages are copies and come late, in order for each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kernel.api.client import Destinations
from kernel.api.tree import (
    Subscriber,
    SubscriberFacts,
    SubscriberSink,
    SubscriberSpec,
    SubscriptionFacts,
    Watch,
    WatchSink,
    Will,
)
from kernel.common.errors import KernelError
from kernel.routing.watches import LocalWatch
from tests.simulator.hostile_consumer import Host
from tests.simulator.hostile_link import Late, error_through_bytes, through_bytes
from tests.simulator.hostile_subscriber import HostileSubscriber, Name, way_from, way_to


class HostileWatch:
    """`tree.WatchSink` of the store and `tree.Watch` of the adapter."""

    def __init__(self, late: Late, sink: WatchSink, tag: object) -> None:
        self._late = late
        self._sink = sink
        self.tag = tag
        self.inner: tuple[Watch, ...] = ()

    def published_live(self, watch: Watch, slots: Sequence[bytes]) -> None:
        copies = through_bytes(list(slots))

        def tell() -> None:
            if self.inner:
                self._sink.published_live(self, copies)

        self._late.call(self, tell)

    def cancel(self) -> None:
        inner, self.inner = self.inner, ()
        for each in inner:
            each.cancel()


class _Fence:
    """`tree.SubscriberSink` of the store: the adapter hears late, but after its own `open` has
    returned and before that of the connection which has taken over.
    """

    def __init__(self, late: Late, name: Name, sink: SubscriberSink) -> None:
        self._late = late
        self._name = name
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self.subscriber: HostileSubscriber | None = None

    def taken_over(self, subscriber: Subscriber) -> None:
        self._late.call(way_from(self._name), self._arrived)

    def _arrived(self) -> None:
        # `open` has its answer, but its adapter has its turn only now.
        self._loop.call_soon(self._tell)

    def _tell(self) -> None:
        assert self.subscriber is not None
        self._sink.taken_over(self.subscriber)


class HostileTree:
    """`tree.Tree`."""

    def __init__(self, client: Host) -> None:
        self._client = client
        self._late = client.late
        self._local = client.local.tree
        self._routes = client.definitions.tree
        self._leaving: set[asyncio.Task[None]] = set()

    def to(self, tenant: str, name: str, *, retain: bool = False) -> Destinations:
        try:
            if retain:
                self._local.to(tenant, name, retain=True)
            return self._routes.to(tenant, name, retain=retain)
        except KernelError as error:
            raise error_through_bytes(error) from None

    async def watched(self) -> None:
        await self._local.watched()

    def watch(self, tenant: str, pattern: str, sink: WatchSink, tag: object = None) -> Watch:
        watch = HostileWatch(self._late, sink, tag)
        try:
            of_store = self._local.watch(tenant, pattern, watch)
        except KernelError as error:
            raise error_through_bytes(error) from None
        # What is published here goes by the routes that are known here; the rest (wills, dead
        # letters) by the store's.
        own = LocalWatch(tenant, pattern, watch, None, self._unwatch)
        self._routes.add_watch(tenant, pattern, own)
        watch.inner = (of_store, own)
        return watch

    def _unwatch(self, watch: LocalWatch) -> None:
        self._routes.remove_watch(watch.tenant, watch.pattern, watch)

    async def retained(
        self, tenant: str, pattern: str, messages_max: int
    ) -> Sequence[tuple[int, bytes]]:
        await self._late.pause()
        try:
            found = await self._local.retained(tenant, pattern, messages_max)
        except KernelError as error:
            raise error_through_bytes(error) from None
        finally:
            await self._late.pause()
        return [(age_ms, slot) for age_ms, slot in through_bytes([list(each) for each in found])]

    async def retains(self, tenant: str, patterns: Sequence[str]) -> Sequence[bool]:
        await self._late.pause()
        try:
            found = await self._local.retains(tenant, through_bytes(list(patterns)))
        except KernelError as error:
            raise error_through_bytes(error) from None
        finally:
            await self._late.pause()
        return [bool(each) for each in found]

    async def subscribers(
        self, tenant: str, begins: str = "", after: str = "", limit: int = 100
    ) -> Sequence[SubscriberFacts]:
        await self._late.pause()
        return await self._local.subscribers(tenant, begins, after, limit)

    async def subscriptions(self, tenant: str, name: str) -> Sequence[SubscriptionFacts]:
        await self._late.pause()
        return await self._local.subscriptions(tenant, name)

    async def open(self, spec: SubscriberSpec, sink: SubscriberSink) -> Subscriber:
        name = (spec.tenant, spec.name)
        copy = _through_bytes(spec)
        fence = _Fence(self._late, name, sink)
        await self._late.turn(way_to(name))
        try:
            inner = await self._local.open(copy, fence)
        except KernelError as error:
            await self._late.turn(way_from(name))
            raise error_through_bytes(error) from None
        fence.subscriber = HostileSubscriber(self._client, spec.tenant, inner)
        try:
            await self._late.turn(way_from(name))
        except asyncio.CancelledError:
            self._leave(inner)
            raise
        return fence.subscriber

    async def drop(self, tenant: str, name: str) -> bool:
        await self._late.turn(way_to((tenant, name)))
        return await self._local.drop(tenant, name)

    def _leave(self, unseen: Subscriber) -> None:
        """Nobody waits for it any more."""

        async def leave() -> None:
            await unseen.close(will=False)

        task = asyncio.get_running_loop().create_task(leave())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)


def _through_bytes(spec: SubscriberSpec) -> SubscriberSpec:
    will = spec.will
    copy = None
    if will is not None:
        copy = Will(*through_bytes([will.name, will.slot, will.delay_ms, will.retain]))
    tenant, name, clean, expiry_ms, user = through_bytes(
        [spec.tenant, spec.name, spec.clean, spec.expiry_ms, spec.user]
    )
    return SubscriberSpec(tenant, name, clean, expiry_ms, copy, user, spec.may_have)
