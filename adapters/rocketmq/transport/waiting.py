"""Waiting, for the calls: sends and polls.

* `SharedBatches`: the sends of one turn of the event loop share kernel batches; each waits for its
  own future, which the one completion of the batch resolves.
* `SharedChanges`: so do the acks of one turn, one change of leases a topic and group.
* `Polls`: a receive ends by a message, by its time, by its client's going, by a right that is
  withdrawn, or by `drain`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar, cast

from adapters import waiting_calls
from adapters.rocketmq.origin import ORIGIN_BYTE
from adapters.waiting_calls import NOTHING_RECEIVED, Poll, WaitingPolls
from kernel.api.client import LeaseChange, LeaseVerb
from kernel.common.errors import KernelError

from ..errors import Code, RocketmqError
from ..settings import (
    ACK_ENTRIES_MAX,
    GATHER_S,
    GATHERINGS_MAX,
    PUBLISH_BYTES_MAX,
    PUBLISH_MESSAGES_MAX,
    PULL_LOOK_S,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from adapters.transport import Tasks
    from kernel.api.client import Client, PublishBatch, Received, ReceiveSpec, Session
    from kernel.api.model import TopicInfo

T = TypeVar("T")


class SharedBatches(waiting_calls.SharedBatches):
    """Batches that go when as many sends have come as may be expected.

    A commit costs as much as several sends, so a busy gateway makes few of many sends, and an idle
    one delays nothing. A batch is handed over, at the end of the turn of the event loop, once as
    many sends have gathered as wait for an answer when it is busiest (less an eighth, so that a
    client that has left is not waited for long). If they do not come, it goes as soon as GATHER_S
    brings no further send, and after GATHERINGS_MAX of these in any case. Who sends one by one is
    the only one that waits, and waits for nobody.
    """

    def __init__(self, client: Client, session: Session, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(client, session, loop)
        self.number = 0
        self._full: list[PublishBatch] = []
        self._gathered = 0
        """Sends that are not handed over."""
        self._unanswered = 0
        """These, and those on their way to the disk."""
        self._busiest = 0
        """The most that were unanswered of late."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_submitting = False
        self._seen = 0
        self._gatherings = 0

    def _begun(self) -> None:
        self.number += 1

    def stored(self, batch: PublishBatch) -> asyncio.Future[None]:
        """Done once the batch has completed; call it right after the last `add`."""
        done: asyncio.Future[None] = self._loop.create_future()
        cast("list[asyncio.Future[None]]", batch.tag).append(done)
        self._gathered += 1
        self._unanswered += 1
        self._busiest = max(self._busiest, self._unanswered)
        if batch.size_bytes >= PUBLISH_BYTES_MAX or batch.count >= PUBLISH_MESSAGES_MAX:
            self._open = None
            self._full.append(batch)
            self._submit_soon()
        elif self._gathered >= self._busiest - (self._busiest >> 3):
            self._submit_soon()
        elif self._timer is None:
            self._seen, self._gatherings = self._gathered, 0
            self._timer = self._loop.call_later(GATHER_S, self._look)
        return done

    def _look(self) -> None:
        """Time has passed: hand over, unless it has brought more."""
        self._gatherings += 1
        if self._gathered > self._seen and self._gatherings < GATHERINGS_MAX:
            self._seen = self._gathered
            self._timer = self._loop.call_later(GATHER_S, self._look)
        else:
            # Fewer came than had been; one pause does not mean that they are gone.
            self._busiest = max(self._unanswered, self._busiest * 3 // 4)
            self.flush()

    def _submit_soon(self) -> None:
        if not self._is_submitting:
            self._is_submitting = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Hand over what has gathered, without waiting for more."""
        self._is_submitting = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batches, self._full = self._full, []
        if self._open is not None:
            batches.append(self._open)
            self._open = None
        self._gathered = 0
        for batch in batches:
            self._client.submit(batch)

    def published(self, batch: PublishBatch) -> None:
        """The kernel has stored, or refused, every message."""
        waiting = cast("list[asyncio.Future[None]]", batch.tag)
        self._unanswered -= len(waiting)
        for done in waiting:
            if not done.done():
                done.set_result(None)


class SharedChanges:
    """Lease changes of the calls of one turn of the event loop, a call of the kernel for each topic
    and group. Clients ack one by one: a change alone costs the log three times its share of many.
    """

    def __init__(self, client: Client, loop: asyncio.AbstractEventLoop, tasks: Tasks) -> None:
        self._client = client
        self._loop = loop
        self._tasks = tasks
        self._open: dict[tuple[int, str], _Changes] = {}

    def settle(
        self, topic: TopicInfo, group: str, changes: Sequence[LeaseChange]
    ) -> asyncio.Future[Sequence[KernelError | None]]:
        """Change leases, as `Client.settle_leases`."""
        key = (topic.id, group)
        batch = self._open.get(key)
        if batch is None or len(batch.changes) + len(changes) > ACK_ENTRIES_MAX:
            batch = self._open[key] = _Changes(topic, group)
            self._loop.call_soon(self._hand_over, key, batch)
        done: asyncio.Future[Sequence[KernelError | None]] = self._loop.create_future()
        batch.calls.append((len(changes), done))
        batch.changes += changes
        return done

    def _hand_over(self, key: tuple[int, str], batch: _Changes) -> None:
        if self._open.get(key) is batch:
            del self._open[key]
        self._tasks.start(self._settle(batch)).add_done_callback(batch.leave)

    async def _settle(self, batch: _Changes) -> None:
        at = 0
        try:
            results = await self._client.settle_leases(
                batch.topic, batch.group, batch.changes, ORIGIN_BYTE
            )
        except KernelError as error:
            for _, done in batch.calls:
                if not done.done():
                    done.set_exception(error)
        else:
            for count, done in batch.calls:
                if not done.done():
                    done.set_result(results[at : at + count])
                at += count


class _Changes:
    """Changes that go together, and the calls that wait for them: (number of changes, future)."""

    __slots__ = ("calls", "changes", "group", "topic")

    def __init__(self, topic: TopicInfo, group: str) -> None:
        self.topic = topic
        self.group = group
        self.changes: list[LeaseChange] = []
        self.calls: list[tuple[int, asyncio.Future[Sequence[KernelError | None]]]] = []

    def leave(self, _task: object) -> None:
        """Nobody works on them any more: calls that have no answer are left when all stops."""
        for _, done in self.calls:
            done.cancel()


class Polls(WaitingPolls[RocketmqError]):
    """Receives, of which some wait."""

    def __init__(
        self, client: Client, loop: asyncio.AbstractEventLoop, tasks: Tasks, polls_max: int
    ) -> None:
        super().__init__()
        self._client = client
        self._loop = loop
        self._tasks = tasks
        self._polls_max = polls_max

    async def receive(self, spec: ReceiveSpec, check: Callable[[], None]) -> Received:
        """As `Client.receive`, but ends with nothing on `drain`; cancelling it cancels the poll.

        Raises KernelError, RocketmqError TOO_MANY_REQUESTS if too many wait, and what `check`
        raises.
        """
        if not self._may_wait(check):
            return NOTHING_RECEIVED
        pull = self._loop.create_task(self._client.receive(spec))
        poll = Poll(pull, check, RocketmqError)
        self._waiting.add(poll)
        try:
            return await pull
        except asyncio.CancelledError:
            if self._was_ended(poll):
                return NOTHING_RECEIVED
            if pull.done() and not pull.cancelled() and pull.exception() is None:
                # They came at the moment the client went.
                received = pull.result()
                if received.deliveries is not None:
                    self.give_back(spec, received.tokens, received.deliveries.slots)
            raise
        finally:
            self._waiting.discard(poll)

    async def repeat(
        self, look: Callable[[], Awaitable[T | None]], wait_ms: int, check: Callable[[], None]
    ) -> T | None:
        """What `look` finds, called every PULL_LOOK_S for so long until it finds something; None if
        it does not, and on `drain`. Raises what `look` raises, otherwise as `receive`.
        """
        if not self._may_wait(check):
            return None
        pull = self._loop.create_task(self._repeat(look, wait_ms))
        poll = Poll(pull, check, RocketmqError)
        self._waiting.add(poll)
        try:
            return await pull
        except asyncio.CancelledError:
            if self._was_ended(poll):
                return None
            pull.cancel()
            raise
        finally:
            self._waiting.discard(poll)

    async def _repeat(self, look: Callable[[], Awaitable[T | None]], wait_ms: int) -> T | None:
        until_s = self._loop.time() + wait_ms / 1_000
        while (found := await look()) is None:
            left_s = until_s - self._loop.time()
            if left_s <= 0:
                return None
            await asyncio.sleep(min(PULL_LOOK_S, left_s))
        return found

    def _may_wait(self, check: Callable[[], None]) -> bool:
        """Whether a receive may begin to wait: not any more once all is drained. Raises
        RocketmqError TOO_MANY_REQUESTS if too many do, and what `check` raises.
        """
        # From here on a recheck sees it; until here it was the call's own to ask.
        check()
        if len(self._waiting) >= self._polls_max:
            message = f"{self._polls_max} receives wait already (polls_max)"
            raise RocketmqError(Code.TOO_MANY_REQUESTS, message)
        return not self._is_draining

    def _was_ended(self, poll: Poll[RocketmqError]) -> bool:
        """Whether a poll that was cancelled was so by `drain` or a recheck, which are alone in
        cancelling a poll and not its call. Raises why its caller may not receive any more.
        """
        if not poll.task.cancelled() or _is_cancelling():
            return False
        if poll.refusal is not None:
            self.revoked += 1
            raise poll.refusal from None
        return True

    def give_back(self, spec: ReceiveSpec, tokens: Sequence[bytes], slots: Sequence[bytes]) -> None:
        """Make leased messages that have reached nobody ready again, without anyone waiting for it:
        they have not been delivered.
        """
        self._change(
            spec,
            [
                LeaseChange(token, LeaseVerb.RETURN, slot_bytes=len(slot))
                for token, slot in zip(tokens, slots, strict=True)
            ],
        )

    def shorten(self, spec: ReceiveSpec, tokens: Sequence[bytes], lease_ms: int) -> None:
        """Let leases end after so long, of messages that their client may have got or not."""
        self._change(spec, [LeaseChange(token, LeaseVerb.EXTEND, lease_ms) for token in tokens])

    def _change(self, spec: ReceiveSpec, changes: Sequence[LeaseChange]) -> None:
        if changes:
            self._tasks.start(self._settle(spec, changes))

    async def _settle(self, spec: ReceiveSpec, changes: Sequence[LeaseChange]) -> None:
        try:
            await self._client.settle_leases(spec.topic, spec.group, changes, ORIGIN_BYTE)
        except KernelError:
            # The topic is gone, or nothing can be stored: the leases run out by themselves.
            return


def _is_cancelling() -> bool:
    """Whether it is the running task that was cancelled, not something it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
