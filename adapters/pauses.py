"""Connections that are not read from for a while, because they owe something (`limiting`), and
those of them whose clients leave meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

LIMITED: Final = "limits"
"""Why reading is held."""

HOLD_MS_MAX: Final = 1_000
"""So long a connection is not read from before it is asked again: a limit may be lifted."""

HOLD_MS_MIN: Final = 20
"""Less is not waited: what has been read is taken in few pieces then, each a batch."""

LEFT_S_MAX: Final = 3.0
"""So long the connection of a client that has left is held: what it has sent is taken meanwhile as
limits allow, and then dropped. Else who connects anew each time leaves connections without end."""


def wait_s(delay_ms: int) -> float:
    """For how many seconds to wait before limits are asked again."""
    return min(max(delay_ms, HOLD_MS_MIN), HOLD_MS_MAX) / 1_000


class Holdable(Protocol):
    """A connection (`transport.StreamProtocol`)."""

    def hold_reading(self, reason: str) -> None:
        """Do not read until `release_reading`."""

    def release_reading(self, reason: str) -> None:
        """Read again."""

    def watch_peer(self) -> None:
        """Have the system find out whether the peer is there, if nothing else does."""

    def has_been_left(self) -> bool:
        """Whether its peer has closed it: nothing more comes than what the socket has."""


class Pause:
    """One connection that owes."""

    __slots__ = ("_again", "_call_later", "_held", "_is_watched", "_leave", "_left_s", "is_on")

    def __init__(
        self,
        held: Holdable,
        call_later: Callable[..., object],
        again: Callable[[], int],
        leave: Callable[[], None],
    ) -> None:
        """`call_later(seconds, action)`; `again()` goes on with what was read before, if nothing is
        owed any more, and says for how long more nothing is to be read. `leave()`: the client has
        left, and is not waited for.
        """
        self._held = held
        self._call_later = call_later
        self._again = again
        self._leave = leave
        self._is_watched = False
        self._left_s = 0.0
        """For how long it has been held since its client was last seen."""
        self.is_on = False

    def begin(self, delay_ms: int) -> None:
        """Nothing is read for so long."""
        if not self.is_on:
            self.is_on = True
            self._held.hold_reading(LIMITED)
            self._wait(delay_ms)

    def _wait(self, delay_ms: int) -> None:
        seconds = wait_s(delay_ms)
        self._left_s += seconds
        self._call_later(seconds, self._over)

    def _over(self) -> None:
        delay_ms = self._again()
        if delay_ms and not self._is_watched:
            self._is_watched = True
            self._held.watch_peer()
        # Of a socket that is not read nobody is told that it is closed.
        if not self._held.has_been_left():
            self._left_s = 0.0
        elif delay_ms and self._left_s > LEFT_S_MAX:
            self._leave()
            delay_ms = self._again()
        if delay_ms:
            self._wait(delay_ms)
        else:
            self.is_on = False
            self._held.release_reading(LIMITED)
