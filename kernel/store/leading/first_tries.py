"""First tries: which batches a leader has let into the log before. What comes again is never stored
behind what came after it.

A request pipeline sends everything unanswered again, oldest first, to whoever leads then
(`request_pipeline`). Most of it hears what its first try came to. A batch that was refused has left
nothing in the log (unless it was dead-lettered: then the refusal itself is there, see
`topic_room`), and the refusal may have been lost with the connection; meanwhile later batches of
its client, which found room, were stored. It must be refused once more.

    newer than every batch of its client let in      a first try: it is let in, or refused
    else, once all that was let in is applied:
          its result is in the state                 a repeat: it hears that
          something newer of its client is there     it is refused once more
          it has come once more meanwhile            nobody hears this copy, and it does nothing:
                                                     what the next one is told stays true
          something newer was let in meanwhile       the same once more, when that is applied too
          none of these                              nothing has followed it, or the state has
                                                     forgotten its client: as a first try

No refusal is remembered for that, and nothing is told on the way: the sequence of a client's
batches rises in the order in which they are sent, so that what the log has of a client says what
has been refused before. The state knows it of everything applied, also before this leader's term
(a leader that serves has applied all of it), and this object of what is under way. Outboxes are
left out: each of their items is tried on its own until it is stored.
"""

from __future__ import annotations

from collections.abc import Callable

from ...broker.group_state.state import GroupState
from ...common.errors import Code, KernelError
from ...common.ids import OUTBOX_CLIENT
from ...requests.leader import Identity

CLIENTS_MAX = 4_096
"""Clients remembered: gateways are few, but every session that publishes exactly once is one too.
Beyond it those are forgotten of whom everything is applied: the state knows them. 0.5 MB."""

OVERTAKEN = KernelError(
    Code.BUSY, "it was refused before it came again, and what followed it is stored: send it anew"
)
FORGOTTEN = KernelError(
    Code.UNKNOWN_OUTCOME, "it came long ago, and what it came to is no longer kept"
)
COME_SINCE = KernelError(Code.UNKNOWN_OUTCOME, "it has come again since")

_EPOCH = 1
"""Of all but transient outboxes (`ids.OUTBOX_EPOCH`)."""

_NOTHING = -1


class _Client:
    """What was let in of one client."""

    __slots__ = ("batches", "newest")

    def __init__(self, newest: int) -> None:
        self.newest = newest
        """Sequence of the newest batch that was let in, or that the state has."""
        self.batches = 0
        """How many were let in."""


_NOBODY = _Client(_NOTHING)
"""Whose batches have no order; never changed."""

Look = tuple[_Client, int]
"""What was let in of a client at some time; equal: nothing more since."""


class FirstTries:
    """Of one group, in one term of a leader."""

    __slots__ = ("_clients", "_forgetting", "_state", "_waiting", "_when_applied")

    def __init__(
        self, state: GroupState, when_applied: Callable[[Callable[[object], None]], None]
    ) -> None:
        """`when_applied(action)` calls it once everything let in so far is applied."""
        self._state = state
        self._when_applied = when_applied
        self._clients: dict[int, _Client] = {}
        self._waiting: dict[Identity, Look] = {}
        """Copies that wait for what was let in, the latest of each batch; with what was let in of
        their client when they came."""
        self._forgetting = False

    def __len__(self) -> int:
        """Clients remembered now."""
        return len(self._clients)

    def is_new(self, identity: Identity) -> bool:
        """Whether a batch that comes is newer than every one of its client that was let in (hot).
        An older copy of it that waits is void.
        """
        if self._waiting:
            self._waiting.pop(identity, None)
        known = self._clients.get(identity[0])
        if known is None:
            known = self._learn(identity)
        return identity[2] > known.newest

    def _learn(self, identity: Identity) -> _Client:
        """What the state has of a client whose batches are to be remembered."""
        client, epoch, _ = identity
        if not 0 < client < OUTBOX_CLIENT or epoch != _EPOCH:
            return _NOBODY
        if len(self._clients) >= CLIENTS_MAX and not self._forgetting:
            self._forgetting = True
            seen = {each: self._look(each) for each in self._clients}
            self._when_applied(lambda _result: self._forget(seen))
        known = self._clients[client] = _Client(self._applied(client))
        return known

    def _applied(self, client: int) -> int:
        known = self._state.clients.get((client, _EPOCH))
        return max(known.results, default=known.floor) if known is not None else _NOTHING

    def _forget(self, seen: dict[int, Look]) -> None:
        """All of this is applied: of who has had nothing let in since, the state knows as much."""
        self._forgetting = False
        for client, look in seen.items():
            if self._look(client) == look:
                del self._clients[client]

    def let_in(self, identity: Identity) -> None:
        """A batch that was found to be new is on its way into the log (hot)."""
        known = self._clients.get(identity[0])
        if known is not None:
            known.newest = identity[2]
            known.batches += 1

    # --- What comes again -------------------------------------------------------------------

    def _look(self, client: int) -> Look:
        known = self._clients.get(client, _NOBODY)
        return known, known.batches

    def waits(self, identity: Identity) -> Look:
        """A batch that is not new waits from now on until what was let in is applied."""
        look = self._waiting[identity] = self._look(identity[0])
        return look

    def has_waited(self, identity: Identity, look: Look) -> bool:
        """It has; False: a later copy of it has come."""
        is_latest = self._waiting.get(identity) is look
        if is_latest:
            del self._waiting[identity]
        return is_latest

    def refusal(self, identity: Identity) -> KernelError | None:
        """Why a batch that has waited, and left nothing in the log as far as that is applied, never
        will.
        """
        client, _, sequence = identity
        known = self._state.clients.get((client, _EPOCH))
        if known is not None and sequence <= known.floor:
            return FORGOTTEN
        return OVERTAKEN if sequence <= self._applied(client) else None

    def is_new_now(self, identity: Identity, look: Look) -> bool:
        """Whether a batch that has waited and is not refused is as new as one that comes for the
        first time; False: more was let in meanwhile, and may be newer.
        """
        if self._look(identity[0]) == look:
            self._clients[identity[0]].newest = self._applied(identity[0])
        return self.is_new(identity)
