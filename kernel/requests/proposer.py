"""Commands that somebody awaits: shared by all that changes more than queues.

Durability: what a `Proposer` returns comes from the apply of an entry that is fdatasynced (or, of
the transient group, that is in memory).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ..broker.log_commands import commands
from ..common.errors import Code, KernelError
from ..common.ids import RaftGroup
from ..common.limits import PUBLISH_DEADLINE_MS
from .leader import Identity, Leader
from .request_pipeline import Attempt, Send


def first_of(results: object) -> object:
    """What the first command of a batch came to: its result, or a KernelError (also if that is all
    there is: the batch was not carried out, or nobody knows).
    """
    if isinstance(results, KernelError):
        return results
    return results[0] if isinstance(results, tuple) and results else None


def all_of(results: object, count: int) -> list[object]:
    """What each command of a batch of `count` came to; a KernelError for each if the batch as a
    whole was not carried out, or nobody knows.
    """
    if isinstance(results, tuple) and len(results) == count:
        return list(results)
    error = first_of(results)
    assert isinstance(error, KernelError), "a batch has a result of each command, or an error"
    return [error] * count


async def propose_to(leader: Leader, change: commands.Control, identity: Identity) -> object:
    """Propose a command to one leader and nobody else; its result once applied. Raises it if it is
    a KernelError: NOT_LEADER, UNKNOWN_OUTCOME too.
    """
    future: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def done(results: object) -> None:
        if not future.done():
            future.set_result(first_of(results))

    leader.propose(change, identity, done)
    result = await future
    if isinstance(result, KernelError):
        raise result
    return result


class Proposer:
    """Has commands carried out, each once, and awaits what they come to."""

    def __init__(self, next_identity: Callable[[], Identity], send: Send) -> None:
        self.next_identity = next_identity
        """(client, epoch, sequence) of the next batch of this process."""
        self.send = send

    async def propose(self, group: RaftGroup, change: commands.Control) -> object:
        """Propose a command; its result once applied. Raises it if it is a KernelError."""
        result = await self.begin(group, change)
        if isinstance(result, KernelError):
            raise result
        return result

    async def outcome(self, group: RaftGroup, attempt: Attempt) -> object:
        """Have a batch carried out; the result of its first command. Raises it if it is a
        KernelError.
        """
        result = await self._begin(group, attempt)
        if isinstance(result, KernelError):
            raise result
        return result

    def begin(self, group: RaftGroup, change: commands.Control) -> asyncio.Future[object]:
        """Propose a command; what it comes to, a KernelError included: for several at once, none of
        which needs a task.
        """
        identity = self.next_identity()
        return self._begin(group, lambda leader, heard: leader.propose(change, identity, heard))

    def begin_all(
        self, group: RaftGroup, changes: Sequence[commands.Control]
    ) -> asyncio.Future[list[object]]:
        """Propose several commands as one batch; what each comes to, KernelErrors included."""
        identity = self.next_identity()
        future: asyncio.Future[list[object]] = asyncio.get_running_loop().create_future()

        def done(results: object) -> None:
            if not future.done():
                future.set_result(all_of(results, len(changes)))

        if len(changes) == 1:
            # What every store understands, of whatever version.
            self.send(
                group, lambda leader, heard: leader.propose(changes[0], identity, heard), done
            )
        else:
            self.send(
                group, lambda leader, heard: leader.propose_all(changes, identity, heard), done
            )
        return future

    def _begin(self, group: RaftGroup, attempt: Attempt) -> asyncio.Future[object]:
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        def done(results: object) -> None:
            if not future.done():
                future.set_result(first_of(results))

        self.send(group, attempt, done)
        return future

    async def outcome_in_time(self, group: RaftGroup, attempt: Attempt) -> object:
        """`outcome`, for clients that wait. Raises KernelError TIMEOUT after the publish deadline:
        carried out or not is not known.
        """
        try:
            async with asyncio.timeout(PUBLISH_DEADLINE_MS / 1000):
                return await self.outcome(group, attempt)
        except TimeoutError:
            message = "not on disk within the publish deadline"
            raise KernelError(Code.TIMEOUT, message) from None
