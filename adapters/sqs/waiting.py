"""Waiting, for the actions: publishing and long polls. Their one module that knows asyncio.

* `SharedBatches`: the sends of one turn of the event loop share a kernel batch; its one completion
  goes on with each of them.
* `LongPolls`: a receive ends by a message, by its time, by its client's going, by a right that is
  withdrawn, or by `drain`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, cast

from kernel.api.client import Received

from .error_codes import SqsError
from .settings import PUBLISH_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kernel.api.client import Client, PublishBatch, ReceiveSpec, Session

    from .environment import Peer

_NOTHING = Received(None, None, (), 0)


class SharedBatches:
    """`environment.Publisher`, and the sink of its batches (`kernel.api.client.PublishSink`)."""

    def __init__(self, client: Client, session: Session, loop: asyncio.AbstractEventLoop) -> None:
        self._client = client
        self._session = session
        self._loop = loop
        self._open: PublishBatch | None = None

    def batch(self) -> PublishBatch:
        """The batch of this turn."""
        batch = self._open
        if batch is None:
            batch = self._open = self._client.batch(self._session, self)
            batch.tag = []
            self._loop.call_soon(self._submit)
        return batch

    def when_stored(self, batch: PublishBatch, action: Callable[[], None]) -> None:
        """See `environment.Publisher`."""
        cast("list[Callable[[], None]]", batch.tag).append(action)
        if batch.size_bytes >= PUBLISH_BYTES_MAX:
            self._submit()

    def stored(self, batch: PublishBatch) -> asyncio.Future[None]:
        """Done once the batch has completed."""
        done: asyncio.Future[None] = self._loop.create_future()
        self.when_stored(batch, partial(_resolve, done))
        return done

    def _submit(self) -> None:
        batch, self._open = self._open, None
        if batch is not None:
            self._client.submit(batch)

    def published(self, batch: PublishBatch) -> None:
        """The kernel has stored, or refused, every message."""
        # Actions know their batch: together they would be garbage that only a collector frees.
        waiting, batch.tag = cast("list[Callable[[], None]]", batch.tag), None
        for action in waiting:
            action()


def _resolve(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


class _Poll:
    """One that waits. `adapters.base.Holder`."""

    __slots__ = ("_check", "_task", "refusal")

    def __init__(self, task: asyncio.Task[object], check: Callable[[], None]) -> None:
        self._task = task
        self._check = check
        self.refusal: SqsError | None = None
        """Why its caller may not receive any more."""

    def recheck(self) -> Iterator[None]:
        """See `adapters.base.Holder`."""
        try:
            self._check()
        except SqsError as error:
            self.refusal = error
            self.end()
        return iter(())

    def end(self) -> None:
        """End it with what it has, which is nothing."""
        self._task.cancel()


class LongPolls:
    """`environment.Polls`.

    A poll waits in the task of its request, which is cancelled to end it: a thousand idle polls
    are a thousand tasks and no more. The kernel gives back what a cancelled receive was about to
    get.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._waiting: set[_Poll] = set()
        self._is_draining = False
        self.revoked = 0
        """Those ended because their caller may not receive any more."""

    def __len__(self) -> int:
        return len(self._waiting)

    def holders(self) -> list[_Poll]:
        """See `adapters.base.Adapter`."""
        return list(self._waiting)

    async def receive(
        self, spec: ReceiveSpec, peer: Peer, check: Callable[[], None]
    ) -> Received | None:
        """See `environment.Polls`."""
        # From here on a recheck sees it; until here it was the request's own to ask.
        check()
        task = asyncio.current_task()
        assert task is not None
        poll = _Poll(task, check)
        if not self._must_end(peer):
            self._waiting.add(poll)
            peer.when_lost(task.cancel)
            try:
                return await self._client.receive(spec)
            except asyncio.CancelledError:
                if poll.refusal is None and not self._must_end(peer):
                    raise
                task.uncancel()
            finally:
                peer.when_lost(None)
                self._waiting.discard(poll)
        if poll.refusal is not None and not peer.is_lost:
            self.revoked += 1
            raise poll.refusal
        return None if peer.is_lost else _NOTHING

    def _must_end(self, peer: Peer) -> bool:
        return self._is_draining or peer.is_lost

    def drain(self) -> None:
        """End every poll with what it has, which is nothing; later ones do not wait."""
        self._is_draining = True
        for poll in tuple(self._waiting):
            poll.end()
