"""Read requests that wait for a quorum to confirm the leader (dissertation 6.4).

A request is put down with the commit index of its moment and sent around as the context of a round
of heartbeats. Once a quorum has answered it, it is served, and with it all that came before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from . import messages
from .errors import ReadsFull
from .messages import Message, ReadState
from .sending import heartbeat

if TYPE_CHECKING:
    from .core import RaftCore


class PendingRead:
    """A request on its round."""

    __slots__ = ("acks", "index", "request")

    def __init__(self, index: int, request: Message, node: int) -> None:
        self.index = index
        self.request = request
        self.acks = {node: True}


class ReadOnly:
    """Requests by context, in the order they came (a dict keeps it)."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending: dict[bytes, PendingRead] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, index: int, request: Message, node: int) -> None:
        """A request comes when `index` is committed; `node`, the leader, agrees with itself."""
        if request.context not in self._pending:
            self._pending[request.context] = PendingRead(index, request, node)

    def acknowledge(self, node: int, context: bytes) -> dict[int, bool] | None:
        """A member has answered the round of this context: who has by now. None: no such round."""
        pending = self._pending.get(context)
        if pending is None:
            return None
        pending.acks[node] = True
        return pending.acks

    def take(self, context: bytes) -> list[PendingRead]:
        """The round of this context is confirmed: it and all before it."""
        done: list[PendingRead] = []
        for each in list(self._pending):
            done.append(self._pending.pop(each))
            if each == context:
                break
        return done

    def last_context(self) -> bytes:
        """Context of the newest request, for the next regular heartbeat; empty if none waits."""
        return next(reversed(self._pending)) if self._pending else b""


def on_read_index(core: RaftCore, message: Message) -> None:
    """Somebody wants to read what is committed now."""
    waiting = len(core.reads) + len(core.postponed_reads)
    if core.tracker.is_singleton and core.tracker.own is not None:
        answer(core, message, core.log.committed)
    elif waiting >= core.options.max_pending_reads:
        raise ReadsFull(f"{waiting} reads wait for a round of heartbeats")
    elif core.log.committed < core.term_start:
        # What earlier terms have committed is known only once something of this one is.
        core.postponed_reads.append(message)
    else:
        _begin_read(core, message)


def _begin_read(core: RaftCore, message: Message) -> None:
    if core.options.lease_reads and holds_lease(core):
        answer(core, message, core.log.committed)
        return
    core.reads.add(core.log.committed, message, core.node)
    heartbeat(core, message.context)


def release(core: RaftCore) -> None:
    postponed, core.postponed_reads = core.postponed_reads, []
    for message in postponed:
        _begin_read(core, message)


def answer(core: RaftCore, request: Message, index: int) -> None:
    if request.sender == core.node:
        core.read_states.append(ReadState(index, request.context))
    else:
        core.send(
            Message(
                messages.READ_INDEX_ANSWER,
                core.node,
                request.sender,
                core.term,
                index=index,
                context=request.context,
            )
        )


LEASE_MARGIN_TICKS: Final = 2
"""A tick of this node and one of the follower are not begun together: each may be short by one."""


def holds_lease(core: RaftCore) -> bool:
    """Whether no other leader can have been elected by now: a quorum has answered a heartbeat sent
    less than an election timeout ago, and grants no vote until then.
    """
    if not core.options.check_quorum or core.lease_void or core.transferee:
        return False
    if core.log.committed < core.term_start:
        return False
    age = core.ticks - core.tracker.stamp(core.ticks)
    return age <= core.options.election_ticks - LEASE_MARGIN_TICKS
