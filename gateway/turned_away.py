"""One log line for each process that the cluster's own listeners have turned away, and not more.

A store or gateway with a wrong secret dials every two seconds for as long as it runs, and anybody
may dial. So of what comes from one host for one reason there is a line a minute, and of all
together LINES_MAX; the next line says how many were left out (`unlogged`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.cluster_settings import spell_address

if TYPE_CHECKING:
    import structlog.typing

    from kernel.ports import Clock

PERIOD_MS = 60_000
LINES_MAX = 30
"""A period: a cluster's worth of processes that have all been given the wrong secret."""

REASON_CHARACTERS_MAX = 200
"""What the other end says of itself stands in some reasons, before anybody knows who it is."""


class TurnedAway:
    """`kernel.rpc.link.TurnedAway`."""

    def __init__(self, log: structlog.typing.FilteringBoundLogger, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._began_ms = clock.monotonic_ms()
        self._said: set[tuple[str, str]] = set()
        """(host, reason) of the lines of this period."""
        self._unlogged = 0

    def __call__(self, address: tuple[str, int], reason: str) -> None:
        """A process has been turned away."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._began_ms >= PERIOD_MS:
            self._began_ms = now_ms
            self._said.clear()
        told = "".join(each if each.isprintable() else "?" for each in reason)
        told = told[:REASON_CHARACTERS_MAX]
        key = address[0], told
        if key in self._said or len(self._said) >= LINES_MAX:
            self._unlogged += 1
            return
        self._said.add(key)
        self._log.warning(
            "a process was turned away",
            peer=spell_address(address),
            reason=told,
            unlogged=self._unlogged,
        )
        self._unlogged = 0
