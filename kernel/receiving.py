"""Pulls and timed leases of a gateway that has the store in its own process.

Durability: `receive` returns leases that are fdatasynced, `settle_leases` changes that are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import cast

from .broker.consumers import DispatchedConsumer
from .broker.dispatcher import Dispatcher
from .broker.features import Feature
from .client import ConsumerSpec, LeaseChange, LeaseVerb, Received, ReceiveSpec
from .errors import Code, KernelError
from .ids import Offset, QueueId
from .log import entry as entries
from .model import QueueRef, Reason, TopicInfo
from .ports import Clock
from .proposer import Proposer
from .pull import Pull, decode_token
from .session import LocalSession
from .store.node import Store


def dispatcher_of(store: Store, topic: TopicInfo, group: str, number: int) -> Dispatcher:
    """Dispatcher of queue `number` of a topic. Raises KernelError NOT_FOUND."""
    ref = topic.queues[number]
    return store.replica(ref.group).dispatcher(ref.id, group)


class Receiver:
    """The pulling half of the local client."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        proposer: Proposer,
    ) -> None:
        self._store = store
        self._clock = clock
        self._loop = loop
        self._proposer = proposer

    async def receive(self, spec: ReceiveSpec) -> Received:
        """Pull messages (see `client.ReceiveSpec`)."""
        ready = 0
        for number in range(len(spec.topic.queues)):
            dispatcher = dispatcher_of(self._store, spec.topic, spec.group, number)
            if dispatcher.leased_count >= dispatcher.queue.topic.groups[spec.group].in_flight_max:
                raise KernelError(
                    Code.LIMIT_EXCEEDED, f"group {spec.group} has in_flight_max messages in flight"
                )
            ready += dispatcher.ready_count
        if not ready and not spec.wait_ms:
            return Received(None, None, (), 0)
        pull = Pull(self._loop)
        consumers = self._pull_from(spec, pull)
        try:
            await self._wait_for_pull(pull, consumers, spec.wait_ms)
        except asyncio.CancelledError:
            pull.abandoned = True
            raise
        finally:
            pull.over()
            for consumer in consumers:
                consumer.pool.left = 0
                if spec.session is None:
                    consumer.cancel()
        return pull.received(spec.session is not None)

    def _pull_from(self, spec: ReceiveSpec, pull: Pull) -> list[DispatchedConsumer]:
        """Consumers that stand for one pull, one on each queue of the topic."""
        consumers: list[DispatchedConsumer] = []
        for number in range(len(spec.topic.queues)):
            dispatcher = dispatcher_of(self._store, spec.topic, spec.group, number)
            key = (dispatcher.queue.id, spec.group)
            session = cast("LocalSession | None", spec.session)
            known = session.pulls.get(key) if session is not None else None
            if known is not None and isinstance(known.sink, Pull) and not known.sink.is_over:
                known = None  # another receive of the session is still waiting with it
            if known is None or known.ended:
                lease_ms = None
                if session is None:
                    lease_ms = spec.lease_ms
                    if lease_ms is None:
                        lease_ms = dispatcher.queue.topic.groups[spec.group].lease_ms
                wanted = ConsumerSpec(
                    spec.topic,
                    spec.group,
                    spec.session,
                    lease_ms=lease_ms,
                    filter=spec.filter,
                    pull=True,
                    origin=spec.origin,
                )
                known = dispatcher.attach(wanted, pull)
                if session is not None:
                    session.pulls[key] = known
                    session.consumers[known] = None
            known.sink = pull
            consumers.append(known)
        pull.begin(consumers, spec.messages)
        return consumers

    async def _wait_for_pull(
        self, pull: Pull, consumers: Sequence[DispatchedConsumer], wait_ms: int
    ) -> None:
        """Until the pull has messages, or its time is up and none are on their way to it: being
        leased, read from disk, or waiting for the dispatch mark. Never polls.
        """
        if not pull.done.done() and wait_ms:
            await asyncio.wait((pull.done,), timeout=wait_ms / 1000)
        while not pull.done.done():
            news: asyncio.Future[None] = self._loop.create_future()
            tell = partial(_set_once, news)
            if not any(each.dispatcher.tell_when_moved(each, tell) for each in consumers):
                return
            await asyncio.wait((pull.done, news), return_when=asyncio.FIRST_COMPLETED)

    async def settle_leases(
        self, topic: TopicInfo, group: str, changes: Sequence[LeaseChange], origin: int
    ) -> Sequence[KernelError | None]:
        """Change leases by token."""
        refs = {ref.id: ref for ref in topic.queues}
        by_queue: dict[QueueId, list[tuple[int, LeaseChange, int, int]]] = {}
        results: list[KernelError | None] = [None] * len(changes)
        for position, change in enumerate(changes):
            token = decode_token(change.token)
            if token is None or token[0] not in refs:
                results[position] = KernelError(Code.LEASE_LOST, "not a lease of this topic")
                continue
            by_queue.setdefault(QueueId(token[0]), []).append((position, change, *token[1:]))
        under_way = [
            self._change(refs[ident], group, wanted, origin) for ident, wanted in by_queue.items()
        ]
        # Queues do not wait for one another's commit.
        goods = [await under_way[0]] if len(under_way) == 1 else await asyncio.gather(*under_way)
        for wanted, good in zip(by_queue.values(), goods, strict=True):
            for (position, *_), held in zip(wanted, good, strict=True):
                if not held:
                    results[position] = KernelError(
                        Code.LEASE_LOST, "the lease has ended, or the message was settled"
                    )
        return results

    async def _change(
        self,
        ref: QueueRef,
        group: str,
        wanted: Sequence[tuple[int, LeaseChange, int, int]],
        origin: int,
    ) -> Sequence[int]:
        replica = self._store.replica(ref.group)
        now = replica.log_time_ms()
        is_last = replica.dispatcher(ref.id, group).is_last_attempt
        packed = [
            (offset, lease, LeaseVerb.DEAD_LETTER, Reason.ATTEMPTS, 0)
            if change.verb is LeaseVerb.RELEASE and is_last(offset)
            else (
                offset,
                lease,
                change.verb,
                change.reason,
                now + change.delay_ms if change.delay_ms else 0,
            )
            for _, change, offset, lease in wanted
        ]
        identity = self._proposer.next_identity()
        good = await self._proposer.outcome(
            ref.group,
            lambda done: replica.change(ref.id, group, packed, identity, done, origin),
        )
        return cast("Sequence[int]", good)

    async def peek(
        self, topic: TopicInfo, number: int, offset: Offset, messages: int
    ) -> Sequence[tuple[Offset, bytes]]:
        """Messages from an offset on, without leasing them."""
        ref = topic.queues[number]
        replica = self._store.replica(ref.group)
        queue = replica.state.queues.get(ref.id)
        if queue is None:
            raise KernelError(Code.NOT_FOUND, f"topic {topic.name} was deleted")
        found: list[tuple[Offset, bytes]] = []
        at = max(int(offset), queue.index.head)
        while len(found) < messages and queue.index.head <= at < queue.index.tail:
            run = queue.index.find(at)
            if run.features & Feature.HOLE:
                at = run.end
                continue
            count = min(run.end - at, messages - len(found))
            entry = self._store.entry(ref.group, run.index)
            if entry is None and not queue.is_needed(at):
                at += 1
                continue
            if entry is None:
                await self._store.fetched(ref.group, run.index)
                continue
            slots = entries.slots(entry, run.slot, count)
            found += [(Offset(at + i), slot) for i, slot in enumerate(slots) if slot]
            at += count
        return found


def _set_once(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
