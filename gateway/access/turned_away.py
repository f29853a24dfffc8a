"""One log line for each process that the cluster's own listeners have turned away, and not more.

A store or gateway with a wrong secret dials every two seconds for as long as it runs, and anybody
may dial. So of what comes from one host for one reason there is a line a minute, and of all
together LINES_MAX; the next line says how many were left out (`unlogged`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.line_budget import LineBudget
from gateway.config.cluster_settings import spell_address

if TYPE_CHECKING:
    import structlog.typing

    from kernel.common.ports import Clock

LINES_MAX = 30
"""A minute: a cluster's worth of processes that have all been given the wrong secret."""

REASON_CHARACTERS_MAX = 200
"""What the other end says of itself stands in some reasons, before anybody knows who it is."""


class TurnedAway:
    """Logs processes that were turned away (`kernel.rpc.link.TurnedAway`)."""

    def __init__(self, log: structlog.typing.FilteringBoundLogger, clock: Clock) -> None:
        self._log = log
        self._budget = LineBudget(clock, LINES_MAX)

    def __call__(self, address: tuple[str, int], reason: str) -> None:
        """A process has been turned away."""
        told = "".join(each if each.isprintable() else "?" for each in reason)
        told = told[:REASON_CHARACTERS_MAX]
        if self._budget.allows((address[0], told)):
            self._log.warning(
                "a process was turned away",
                peer=spell_address(address),
                reason=told,
                unlogged=self._budget.unlogged(),
            )
