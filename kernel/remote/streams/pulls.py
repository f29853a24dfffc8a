"""The gateway's side of pulls for a session: what they bring is leased as long as that lasts, and
settled as what a consumer was handed (`client.ReceiveSpec`).

Each stands for itself at its queue's leader, by a stream without credit that is kept for the next
pull of the session. It is asked by TAKE, again by whoever leads next, and answered by TOOK, behind
what it has brought. A pull that nobody waits for any more ends with its stream: what is on its way
then returns uncounted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from ...api.client import Consumer, ConsumerSpec, Deliveries, Received, ReceiveSpec, Settlement
from ...api.filters import setting_of
from ...api.model import QueueRef, Reason
from ...broker.delivery.consumers import Handed
from ...common.errors import Code, KernelError
from ...common.ids import SessionId
from ...common.limits import PULL_ANSWER_MS
from ...requests.pull import NOTHING
from .parts import CreditPool, StreamPart
from .stream_wire import MESSAGES_MAX


class StreamPullsHost(Protocol):
    """What is asked of `streams.Streams`."""

    def attach_part(
        self,
        ref: QueueRef,
        spec: ConsumerSpec,
        sink: _Nobody,
        pool: CreditPool,
        claimant: tuple[int, int] = (0, 0),
    ) -> StreamPart:
        """A stream of one queue."""

    def ask(self, part: StreamPart) -> None:
        """A part has a question."""

    def settle(
        self,
        part: StreamPart,
        how: Settlement,
        offsets: Sequence[int],
        reason: Reason,
        sink: None,
        tag: object,
    ) -> None:
        """Settle leases."""


class _Nobody:
    """`client.ConsumerSink` of a stream that nobody pulls from now."""

    def deliver(self, consumer: Consumer, deliveries: Deliveries) -> None:
        """It has no credit: nothing comes."""

    def consumer_ended(self, consumer: Consumer, error: KernelError) -> None:
        """It is found out by the next pull."""


_NOBODY = _Nobody()


class _Pull:
    """One pull from one queue. `client.ConsumerSink`, `parts.Question`."""

    __slots__ = (
        "_loop",
        "_until",
        "brought",
        "done",
        "error",
        "messages",
        "number",
        "part",
        "ready",
    )

    def __init__(
        self, loop: asyncio.AbstractEventLoop, part: StreamPart, messages: int, wait_ms: int
    ) -> None:
        self._loop = loop
        self._until = loop.time() + wait_ms / 1_000
        self.part = part
        self.number = 0
        self.messages = messages
        self.brought: Handed | None = None
        self.ready = 0
        self.error: KernelError | None = None
        self.done: asyncio.Future[None] = loop.create_future()

    def wait_ms(self) -> int:
        """How long it may still wait for the first message."""
        return max(int((self._until - self._loop.time()) * 1_000), 0)

    def deliver(self, consumer: Consumer, deliveries: Deliveries) -> None:
        """Messages have come; there may be more before the end."""
        assert isinstance(deliveries, Handed)
        if self.brought is None:
            self.brought = deliveries
        else:
            self.brought.extend(deliveries.offsets, deliveries.slots, deliveries.attempts)

    def consumer_ended(self, consumer: Consumer, error: KernelError) -> None:
        """The queue is gone."""
        self.took(0, error)

    def lost(self) -> bool:
        """The stream is gone. Whether the pull is to be asked again."""
        if self.brought is not None:
            self.took(0, None)
        return not self.done.done()

    def took(self, ready: int, error: KernelError | None) -> None:
        """The pull has been answered."""
        self.part.question = None
        self.part.sink = _NOBODY
        self.part.pool.left = 0
        self.ready, self.error = ready, error
        if not self.done.done():
            self.done.set_result(None)


class SessionPulls:
    """The pulls of the sessions of this gateway."""

    def __init__(self, host: StreamPullsHost) -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._numbers = 0
        self._round_robin = 0
        self._kept: dict[SessionId, dict[tuple[int, str], list[StreamPart]]] = {}
        """Streams that nobody pulls from now, by session, queue and group."""

    def end_session(self, session: SessionId) -> None:
        """A session is over, and so are its streams."""
        self._kept.pop(session, None)

    async def receive(self, spec: ReceiveSpec) -> Received:
        """`client.Client.receive` for a session, of a topic that is not transient. Also raises
        KernelError INVALID_ARGUMENT for a filter that only this process knows, UNAVAILABLE: no
        leader has answered.
        """
        setting_of(spec.filter)
        refs = spec.topic.queues
        if len(refs) > 1:
            self._round_robin += 1
            at = self._round_robin % len(refs)
            refs = (*refs[at:], *refs[:at])
            for ref in refs:
                pull = self._begin(spec, ref, 0)
                received = await self._first_of([pull])
                if received.deliveries is not None or pull.part.ended:
                    return received  # it has brought something, or its session has ended
            if not spec.wait_ms:
                return NOTHING
        return await self._first_of([self._begin(spec, ref, spec.wait_ms) for ref in refs])

    def _begin(self, spec: ReceiveSpec, ref: QueueRef, wait_ms: int) -> _Pull:
        """Ask one queue's leader."""
        part = self._part(spec, ref)
        pull = _Pull(self._loop, part, min(spec.messages, MESSAGES_MAX), wait_ms)
        self._numbers += 1
        pull.number = self._numbers
        part.question = pull
        part.sink = pull
        part.pool.left = pull.messages
        self._host.ask(part)
        return pull

    def _part(self, spec: ReceiveSpec, ref: QueueRef) -> StreamPart:
        session = spec.session
        assert session is not None
        kept = self._kept.get(session.id, {}).get((ref.id, spec.group))
        while kept:
            part = kept.pop()
            if not part.ended and part.spec.filter is spec.filter:
                return part
            part.cancel()
        wanted = ConsumerSpec(
            spec.topic, spec.group, session, filter=spec.filter, pull=True, origin=spec.origin
        )
        return self._host.attach_part(ref, wanted, _NOBODY, CreditPool(is_told=False))

    async def _first_of(self, pulls: Sequence[_Pull]) -> Received:
        """What the first brings that brings anything; the others end."""
        spec_wait = max(pull.wait_ms() for pull in pulls) / 1_000
        found: _Pull | None = None
        try:
            async with asyncio.timeout(spec_wait + PULL_ANSWER_MS / 1_000):
                found = await self._answered(pulls)
        except TimeoutError:
            message = "no leader of the queue has answered"
            raise KernelError(Code.UNAVAILABLE, message) from None
        finally:
            for pull in pulls:
                self._end(pull, keep=pull is found)
        if found is None or found.brought is None:
            return NOTHING
        return Received(found.brought, found.part, (), found.ready)

    async def _answered(self, pulls: Sequence[_Pull]) -> _Pull | None:
        """The first that has brought something; None: all have brought nothing."""
        waiting = list(pulls)
        while waiting:
            if len(waiting) == 1:
                await waiting[0].done
            else:
                futures = [each.done for each in waiting]
                await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
            for pull in [each for each in waiting if each.done.done()]:
                waiting.remove(pull)
                if pull.error is not None:
                    raise pull.error
                if pull.brought is not None:
                    return pull
        return None

    def _end(self, pull: _Pull, *, keep: bool) -> None:
        """Nobody waits for it any more; `keep`: what it has brought is wanted."""
        part, brought = pull.part, pull.brought
        if not pull.done.done() or pull.done.cancelled():
            part.question = None
            part.sink = _NOBODY
            part.pool.left = 0
            part.cancel()
        elif not part.ended:
            session = part.session
            assert session is not None
            kept = self._kept.setdefault(session, {})
            kept.setdefault((part.ref.id, part.spec.group), []).append(part)
        if brought is not None and not keep:
            self._host.settle(part, Settlement.RETURN, brought.offsets, Reason.REJECTED, None, None)
