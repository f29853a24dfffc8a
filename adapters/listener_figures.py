"""Figures of one listener, the same in every protocol: who is connected, who came, and how long it
takes until a publisher hears ok.

Connections hold the figures of their listener, so that nothing looks a label up. A publish is timed
by what is handed to the kernel at once (the messages of a socket read, or of a call): two readings
of the clock and one addition, however many messages that is.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import structlog

from adapters.line_budget import LineBudget

if TYPE_CHECKING:
    from collections.abc import Iterable

    from adapters.connections import OpenConnection
    from kernel.common.ports import Clock

BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
"""Upper bounds of the histogram: from a synced write of a fast disk to what clients give up on."""

LINES_MAX: Final = 60
"""A minute: log lines, and so events, of who has signed in; a reconnect of ten thousand clients
is not to push everything else out of what is kept of them."""

CROWDED: Final = "connections"
"""Why a connection is refused at once: there are too many."""

_log = structlog.get_logger("weir.connections")


class ListenerFigures:
    """See the module. Belongs to the event loop."""

    __slots__ = (
        "_budget",
        "_counts",
        "_sum_ms",
        "connections",
        "name",
        "now_ms",
        "opened",
        "refused",
        "signed_in_total",
    )

    def __init__(
        self, protocol: str, listener: str, clock: Clock, reasons: Iterable[str] = ()
    ) -> None:
        """`reasons`: what `refuse` is called with, so that every row is there from the start."""
        self.name = f"{protocol}.{listener}"
        """As settings, limits and other metrics call the listener."""
        self.now_ms = clock.monotonic_ms
        self._budget = LineBudget(clock, LINES_MAX)
        self.connections = 0
        """Open now."""
        self.opened = 0
        """Connections that came, those among them that were refused."""
        self.signed_in_total = 0
        """Of these, those whose client has signed in."""
        self.refused = dict.fromkeys(reasons, 0)
        self._counts = [0] * (len(BOUNDS_MS) + 1)
        self._sum_ms = 0

    def entered(self) -> None:
        """A connection has opened."""
        self.connections += 1
        self.opened += 1

    def left(self) -> None:
        """A connection that had entered has closed."""
        self.connections -= 1

    def signed_in(self, connection: OpenConnection) -> None:
        """The client of a connection has signed in: counted, and told to the operator."""
        self.signed_in_total += 1
        if self._budget.allows(self.signed_in_total):
            shown = connection.shown()
            _log.info(
                "connection opened",
                id=shown.id,
                listener=self.name,
                peer=shown.peer,
                tenant=shown.tenant,
                user=shown.user,
                client_id=shown.client_id,
                client=shown.client,
                unlogged=self._budget.unlogged(),
            )

    def refuse(self, reason: str) -> None:
        """A connection or call is refused for one of the reasons that were given at first."""
        self.refused[reason] += 1

    def stored(self, began_ms: int) -> None:
        """What was handed to the kernel at `began_ms` (by `now_ms`) is stored, and its publisher is
        being told so. Once for all messages that went together (hot).
        """
        took_ms = self.now_ms() - began_ms
        self._sum_ms += took_ms
        self._counts[bisect_left(BOUNDS_MS, took_ms)] += 1

    def histogram(self) -> tuple[list[tuple[str, float]], float]:
        """Upper bound in seconds, as text, with how many were not above it; the sum in seconds."""
        bounds = [*(str(each / 1_000) for each in BOUNDS_MS), "+Inf"]
        rows = [
            (bound, float(count))
            for bound, count in zip(bounds, accumulate(self._counts), strict=True)
        ]
        return rows, self._sum_ms / 1_000


class _NoTime:
    def wall_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> int:
        return 0


UNCOUNTED: Final = ListenerFigures("", "", _NoTime())
"""Of connections that no listener of an adapter has made."""
