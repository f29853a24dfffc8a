"""What waits, for the actions: publishing and long polls. Their one module that knows asyncio.

* `SharedBatches`: the sends of one turn of the event loop share a kernel batch; its one completion
  goes on with each of them.
* `LongPolls`: a receive ends by a message, by its time, by its client's going, or by `drain`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, cast

from kernel.client import Received

from .settings import PUBLISH_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel.client import Client, PublishBatch, ReceiveSpec, Session

    from .environment import Peer

_NOTHING = Received(None, None, (), 0)


class SharedBatches:
    """`environment.Publisher`, and the sink of its batches (`kernel.client.PublishSink`)."""

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


class LongPolls:
    """`environment.Polls`.

    A poll waits in the task of its request, which is cancelled to end it: a thousand idle polls
    are a thousand tasks and no more. The kernel gives back what a cancelled receive was about to
    get.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._waiting: set[asyncio.Task[object]] = set()
        self._is_draining = False

    def __len__(self) -> int:
        return len(self._waiting)

    async def receive(self, spec: ReceiveSpec, peer: Peer) -> Received | None:
        """See `environment.Polls`."""
        task = asyncio.current_task()
        assert task is not None
        if not self._must_end(peer):
            self._waiting.add(task)
            peer.when_lost(task.cancel)
            try:
                return await self._client.receive(spec)
            except asyncio.CancelledError:
                if not self._must_end(peer):
                    raise
                task.uncancel()
            finally:
                peer.when_lost(None)
                self._waiting.discard(task)
        return None if peer.is_lost else _NOTHING

    def _must_end(self, peer: Peer) -> bool:
        return self._is_draining or peer.is_lost

    def drain(self) -> None:
        """End every poll with what it has, which is nothing; later ones do not wait."""
        self._is_draining = True
        for task in tuple(self._waiting):
            task.cancel()
