"""What waits in protocols of calls that each have an answer: sends that share a kernel batch, and
receives that wait for a message (long polls). When a batch goes, and in which task a receive waits,
is each protocol's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kernel.api.client import Received

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from kernel.api.client import Client, PublishBatch, Session
    from kernel.api.tracing import ConnectedUser

RefusalT = TypeVar("RefusalT", bound=Exception)

NOTHING_RECEIVED = Received(None, None, (), 0)
"""What a poll that is ended has got."""


class SharedBatches(ABC):
    """The kernel batch that is open, and the sink of batches (`kernel.api.client.PublishSink`): a
    commit costs as much as several sends, so they go together. A batch's tag is the list of those
    who wait for it.
    """

    def __init__(self, client: Client, session: Session, loop: asyncio.AbstractEventLoop) -> None:
        self._client = client
        self._session = session
        self._loop = loop
        self._open: PublishBatch | None = None

    def batch(self, by: ConnectedUser | None = None) -> PublishBatch:
        """The batch that is open now: add to it at once, without awaiting in between. `by`: who
        publishes what is added now, while that is noted.
        """
        batch = self._open
        if batch is None:
            batch = self._open = self._client.batch(self._session, self)
            batch.tag = []
            self._begun()
        if self._client.is_tracing:
            batch.comes_from(by)
        return batch

    @abstractmethod
    def _begun(self) -> None:
        """A batch is open from now on."""

    @abstractmethod
    def published(self, batch: PublishBatch) -> None:
        """The kernel has stored, or refused, every message."""


class Poll(Generic[RefusalT]):
    """A receive that waits, in a task that is cancelled to end it. `adapters.base.Holder`."""

    __slots__ = ("_check", "_refusals", "refusal", "task")

    def __init__(
        self, task: asyncio.Task[Any], check: Callable[[], None], refusals: type[RefusalT]
    ) -> None:
        """`check` raises one of `refusals` once its caller may not receive any more."""
        self.task = task
        self._check = check
        self._refusals = refusals
        self.refusal: RefusalT | None = None
        """Why its caller may not receive any more."""

    def recheck(self) -> Iterator[None]:
        """See `adapters.base.Holder`."""
        try:
            self._check()
        except self._refusals as error:
            self.refusal = error
            self.end()
        return iter(())

    def end(self) -> None:
        """End it with what it has, which is nothing."""
        self.task.cancel()


class WaitingPolls(Generic[RefusalT]):
    """The polls that wait now."""

    def __init__(self) -> None:
        self._waiting: set[Poll[RefusalT]] = set()
        self._is_draining = False
        self.revoked = 0
        """Those ended because their caller may not receive any more."""

    def __len__(self) -> int:
        return len(self._waiting)

    def holders(self) -> list[Poll[RefusalT]]:
        """See `adapters.base.Adapter`."""
        return list(self._waiting)

    def drain(self) -> None:
        """End every poll with what it has, which is nothing; later ones do not wait."""
        self._is_draining = True
        for poll in tuple(self._waiting):
            poll.end()
