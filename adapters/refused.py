"""Refusals of an adapter's listeners, by reason: counted, and in the log.

A refused request, or a connection that is closed for what its client did, is counted by listener
and reason. The reasons of a protocol are an enum of its adapter, so that there are only so many
rows in the metric `weir_refused_total`, all there from the start. Anybody can cause them, as often
as they like: of each listener, reason and address there is a log line a minute, and of each reason
LINES_MAX in all; the next one says how many were left out (`unlogged`). A reason has a budget of
its own, so that a flood of one hides no other.

Only to be called for what is refused: nothing of this is on the way of what is served.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from adapters.line_budget import LineBudget

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import structlog.typing

    from kernel.common.ports import Clock

_ReasonT = TypeVar("_ReasonT", bound=StrEnum)

LINES_MAX: Final = 10
"""A minute and reason: as many hosts with the same mistake as somebody would look at."""

TEXT_CHARACTERS_MAX: Final = 200
"""Of what a stranger said of itself, in one field of a line."""


class Refused(Generic[_ReasonT]):
    """Counts and logs what the listeners of one adapter refuse."""

    def __init__(
        self,
        log: structlog.typing.FilteringBoundLogger,
        clock: Clock,
        protocol: str,
        listeners: Iterable[str],
        reasons: type[_ReasonT],
    ) -> None:
        """`protocol`: the adapter's key in protocols.yaml; `listeners`: their names below it."""
        self._log = log
        self._protocol = protocol
        self._budgets = {reason: LineBudget(clock, LINES_MAX) for reason in reasons}
        self._counts = {(each, reason): 0 for each in listeners for reason in reasons}

    @property
    def counts(self) -> Mapping[tuple[str, str], int]:
        """By (`protocol.listener`, reason), all since the start."""
        return {
            (f"{self._protocol}.{listener}", reason.value): count
            for (listener, reason), count in self._counts.items()
        }

    def total(self, *reasons: _ReasonT) -> int:
        """Of these reasons, over all listeners; of all without any."""
        return sum(
            count for (_, each), count in self._counts.items() if not reasons or each in reasons
        )

    def note(self, listener: str, reason: _ReasonT, peer: str, **more: object) -> None:
        """Something was refused. `peer`: `host:port`, or what there is of it; `more`: what else
        helps an operator. Texts are cut and made printable: never a secret, a body or a password.
        """
        self._counts[listener, reason] += 1
        budget = self._budgets[reason]
        if budget.allows((listener, peer.rpartition(":")[0])):
            self._log.warning(
                "refused",
                listener=f"{self._protocol}.{listener}",
                reason=reason.value,
                peer=peer,
                **{name: _told(value) for name, value in more.items()},
                unlogged=budget.unlogged(),
            )


def _told(value: object) -> object:
    if not isinstance(value, str):
        return value
    return "".join(each if each.isprintable() else "?" for each in value[:TEXT_CHARACTERS_MAX])
