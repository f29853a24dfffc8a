"""Read requests that wait for a quorum to confirm the leader: the list of `read_only`."""

from __future__ import annotations

from .messages import RaftMessage


class PendingRead:
    """A request on its round."""

    __slots__ = ("acks", "index", "request")

    def __init__(self, index: int, request: RaftMessage, node: int) -> None:
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

    def add(self, index: int, request: RaftMessage, node: int) -> None:
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
