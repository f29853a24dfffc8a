"""Sessions of one process: who is open now, and what they are called in the cluster.

A session's id is unique in the cluster but for chance: 31 random bits of the process, 32 that it
counts. So an owner that stands in another process's definitions is never taken for one of ours.
"""

from __future__ import annotations

from collections.abc import Callable

from ..api.tracing import ConnectedUser
from ..common.ids import SessionId
from .session import LocalSession


class Sessions:
    """Opens sessions. `session.SessionHost`."""

    def __init__(self, process: int, ended: Callable[[LocalSession], None]) -> None:
        """`process`: 31 bits by chance; `ended(session)` is called when one ends."""
        self._base = process << 32
        self._next = 1
        self._ended = ended
        self.open_now: dict[SessionId, LocalSession] = {}

    def open(self, name: str, origin: int, by: ConnectedUser | None = None) -> LocalSession:
        """Open a session."""
        ident = SessionId(self._base | self._next)
        self._next += 1
        session = self.open_now[ident] = LocalSession(self, ident, name, origin, by)
        return session

    def end_session(self, session: LocalSession) -> None:
        """Forget a session that has ended."""
        del self.open_now[session.id]
        self._ended(session)
