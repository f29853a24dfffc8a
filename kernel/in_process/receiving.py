"""Pulls from queues whose leader is in this process.

Durability: what `receive` returns under timed leases is fdatasynced with them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from ..api.client import ConsumerSpec, Received, ReceiveSpec
from ..api.model import TopicInfo
from ..broker.delivery.consumers import DispatchedConsumer
from ..broker.delivery.dispatcher import Dispatcher
from ..common.errors import Code, KernelError
from ..common.ids import NUMBER_BITS
from ..requests.pull import NOTHING, Pull
from ..requests.session import LocalSession
from ..store.node import Store


def dispatcher_of(store: Store, topic: TopicInfo, group: str, number: int) -> Dispatcher:
    """Dispatcher of queue `number` of a topic. Raises KernelError NOT_FOUND."""
    ref = topic.queue_numbered(number)
    return store.replica(ref.group).dispatcher(ref.id, group)


class Receiver:
    """The pulling half of a client."""

    def __init__(
        self,
        dispatcher: Callable[[TopicInfo, str, int], Dispatcher],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._dispatcher = dispatcher
        self._loop = loop

    async def receive(self, spec: ReceiveSpec) -> Received:
        """Pull messages (see `client.ReceiveSpec`)."""
        dispatchers = [
            self._dispatcher(spec.topic, spec.group, ref.id & NUMBER_BITS)
            for ref in spec.topic.queues
        ]
        done: asyncio.Future[None] = self._loop.create_future()
        pull = begin_pull(spec, dispatchers, self._loop, partial(_set_once, done))
        if pull is None:
            return NOTHING
        keep = spec.session is not None
        try:
            await done
        except asyncio.CancelledError:
            pull.close(keep=keep)
            pull.give_back()
            raise
        pull.close(keep=keep)
        return pull.received(session=keep)


def begin_pull(
    spec: ReceiveSpec,
    dispatchers: Sequence[Dispatcher],
    loop: asyncio.AbstractEventLoop,
    ended: Callable[[], None],
    *,
    paused: bool = False,
) -> Pull | None:
    """Begin to pull from some queues of `spec.topic`; None if there is nothing and it does not
    wait. `paused`: it has no credit before `Pull.resume`. Raises KernelError LIMIT_EXCEEDED.
    """
    ready = 0
    for dispatcher in dispatchers:
        if dispatcher.leased_count >= dispatcher.queue.topic.groups[spec.group].in_flight_max:
            raise KernelError(
                Code.LIMIT_EXCEEDED, f"group {spec.group} has in_flight_max messages in flight"
            )
        ready += dispatcher.ready_count
    if not ready and not spec.wait_ms:
        return None
    pull = Pull(loop, ended)
    consumers = [_consumer(spec, dispatcher, pull) for dispatcher in dispatchers]
    pull.begin(consumers, spec.messages, spec.wait_ms, paused=paused)
    return pull


def _consumer(spec: ReceiveSpec, dispatcher: Dispatcher, pull: Pull) -> DispatchedConsumer:
    """A consumer that stands for a pull at one queue."""
    session = cast("LocalSession | None", spec.session)
    if session is None:
        lease_ms = spec.lease_ms
        if lease_ms is None:
            lease_ms = dispatcher.queue.topic.groups[spec.group].lease_ms
        return dispatcher.attach(_wanted(spec, lease_ms), pull)
    key = (dispatcher.queue.id, spec.group)
    known = session.pulls.get(key)
    # Another receive of the session may still wait with the one that is known.
    waits = known is not None and isinstance(known.sink, Pull) and not known.sink.is_over
    if known is None or waits or known.ended:
        known = dispatcher.attach(_wanted(spec, None), pull)
        session.pulls[key] = known
        session.consumers[known] = None
    known.sink = pull
    return known


def _wanted(spec: ReceiveSpec, lease_ms: int | None) -> ConsumerSpec:
    return ConsumerSpec(
        spec.topic,
        spec.group,
        spec.session,
        lease_ms=lease_ms,
        filter=spec.filter,
        pull=True,
        origin=spec.origin,
        fair=spec.fair,
        note=spec.note,
    )


def _set_once(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
