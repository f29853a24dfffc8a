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

from adapters import waiting_calls
from adapters.waiting_calls import NOTHING_RECEIVED, Poll, WaitingPolls

from .error_codes import SqsError
from .settings import PUBLISH_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel.api.client import Client, PublishBatch, Received, ReceiveSpec

    from .environment import Peer


class SharedBatches(waiting_calls.SharedBatches):
    """`environment.Publisher`: a batch goes at the end of its turn of the event loop."""

    def _begun(self) -> None:
        self._loop.call_soon(self._submit)

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


class LongPolls(WaitingPolls[SqsError]):
    """`environment.Polls`.

    A poll waits in the task of its request, which is cancelled to end it: a thousand idle polls
    are a thousand tasks and no more. The kernel gives back what a cancelled receive was about to
    get.
    """

    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client = client

    async def receive(
        self, spec: ReceiveSpec, peer: Peer, check: Callable[[], None]
    ) -> Received | None:
        """See `environment.Polls`."""
        # From here on a recheck sees it; until here it was the request's own to ask.
        check()
        task = asyncio.current_task()
        assert task is not None
        poll = Poll(task, check, SqsError)
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
        return None if peer.is_lost else NOTHING_RECEIVED

    def _must_end(self, peer: Peer) -> bool:
        return self._is_draining or peer.is_lost
