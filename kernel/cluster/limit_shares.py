"""How the gateways of a cluster share limits: a table that the leader of group 0 keeps in memory.
Pure: time is an argument.

A gateway tells each second what it wants of each limit that somebody uses there, as a part of it:

    what was used in the busiest of the last seconds, and a quarter more
    all of it, if somebody had to wait or was refused

It hears what it may use: all get what they want, as long as there is enough, and what is over is
spread evenly; else the level is found up to which each gets what it wants (max-min fairness). A
limit that a gateway has not told of it may use evenly with all others: so whoever comes to a
gateway where nobody was begins at once, and for a second or two a little more is used.

Of a limit that is a number (connections) each hears how many there are at all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .messages import LimitShare, LimitUse

SHARE_MIN = 0.001
"""A share is never nothing: one message passes, and what it costs is known."""

LOOK_MS = 250
"""A limit is divided anew so often at most, however many gateways there are."""

_Key = tuple[str, str, str, str]


@dataclass(slots=True)
class Division:
    """How one limit is divided."""

    level: float
    """Up to which each gets what it wants."""
    more: float
    """What each gets besides."""
    held: int
    """How many there are, of a number."""
    looked_ms: int


def divided(uses: Sequence[LimitUse], now_ms: int) -> Division:
    """What becomes of a limit of which gateways want so much."""
    held = sum(each.held for each in uses)
    left, others = 1.0, len(uses)
    for want in sorted(each.wanted for each in uses):
        if want * others > left:
            return Division(left / others, 0.0, held, now_ms)
        left -= want
        others -= 1
    return Division(1.0, left / len(uses), held, now_ms)


class LimitTable:
    """What all gateways have told last."""

    def __init__(self) -> None:
        self._told: dict[str, Sequence[LimitUse]] = {}
        self._uses: dict[_Key, dict[str, LimitUse]] = {}
        self._divisions: dict[_Key, Division] = {}

    def clear(self) -> None:
        """Nothing is known."""
        self._told.clear()
        self._uses.clear()
        self._divisions.clear()

    def forget(self, gateway: str) -> None:
        """It is gone."""
        for use in self._told.pop(gateway, ()):
            uses = self._uses[use.key]
            del uses[gateway]
            if not uses:
                del self._uses[use.key]
                self._divisions.pop(use.key, None)

    def take(self, gateway: str, told: Sequence[LimitUse], now_ms: int) -> list[LimitShare]:
        """A gateway has told what it uses: what it may use."""
        self.forget(gateway)
        # One that is told twice counts once.
        told = list({use.key: use for use in told}.values())
        self._told[gateway] = told
        for use in told:
            self._uses.setdefault(use.key, {})[gateway] = use
        return [self._share(use, now_ms) for use in told]

    def _share(self, use: LimitUse, now_ms: int) -> LimitShare:
        division = self._divisions.get(use.key)
        if division is None or now_ms - division.looked_ms >= LOOK_MS:
            division = divided(list(self._uses[use.key].values()), now_ms)
            self._divisions[use.key] = division
        share = min(use.wanted, division.level) + division.more
        elsewhere = max(division.held - use.held, 0)
        return LimitShare(*use.key, min(max(share, SHARE_MIN), 1.0), elsewhere)
