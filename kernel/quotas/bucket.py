"""One limit at work, as a bucket of tokens that may be overdrawn.

    tokens come in at the rate, up to those of a second
    what was used is taken out, whatever is in it
    below zero: owed. Who owes waits until nothing is owed; who owes more than a second is refused

So one look at the balance before and one subtraction after are the whole check, a message larger
than a second's tokens still passes, and over any time not more is used than the rate allows, but
for a second's tokens at its beginning and what one look lets through.

All of it is kept as one number, the time at which nothing is owed any more: a second before now
when the bucket is full, after now when something is owed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

BURST_MS: Final = 1_000
"""So much of the rate may be used at once: clients send what they have collected, once a second."""

FAR_OVER_MS: Final = 1_000
"""Who owes more than is paid in so long is refused, where the protocol has a word for that."""

_SECOND_MS: Final = 1_000.0

_ROUNDING_MS: Final = 1e-6
"""What sums of fractions may be wrong by."""


class Bucket:
    """Time is milliseconds of one clock that never goes back."""

    __slots__ = (
        "_cost_ms",
        "_paid_ms",
        "is_active",
        "is_pressed",
        "limit",
        "patience_ms",
        "reason",
        "share",
        "used",
        "used_first",
        "used_seen",
    )

    def __init__(
        self, limit: int, reason: str, share: float = 1.0, patience_ms: int = FAR_OVER_MS
    ) -> None:
        """`limit`: of a second, above 0. `reason`: which limit it is, as counters say it. `share`:
        how much of it is this process's. `patience_ms`: who owes more than is paid in so long is
        refused.
        """
        self.patience_ms = patience_ms
        self.used_seen = 0
        """What of `used` somebody else has seen."""
        self.used_first: Callable[[], object] | None = None
        """Called when something is taken while it is not active; None: nobody wants to know."""
        self.is_active = False
        """Whether anything was taken since somebody else has set this to False."""
        self.limit = limit
        self.share = share
        self.reason = reason
        self.used = 0
        """All that was ever taken."""
        self.is_pressed = False
        """Whether something was owed since somebody else set this to False."""
        self._cost_ms = _SECOND_MS / (limit * share)
        # Before any time: it is full.
        self._paid_ms = float("-inf")

    def change(self, limit: int, share: float, now_ms: int) -> None:
        """The limit, or the share of it, is another one now; what is owed stays owed."""
        cost_ms = _SECOND_MS / (limit * share)
        debt_ms = self._paid_ms - now_ms
        if debt_ms > 0:
            self._paid_ms = now_ms + debt_ms / self._cost_ms * cost_ms
        self.limit, self.share, self._cost_ms = limit, share, cost_ms

    def take(self, now_ms: int, amount: int) -> float:
        """So much was used (hot): after how long nothing is owed any more; not above 0: nothing
        is.
        """
        paid_ms = self._paid_ms
        if paid_ms < now_ms - BURST_MS:  # noqa: PLR1730 - max is a call
            paid_ms = now_ms - BURST_MS
        self._paid_ms = paid_ms = paid_ms + amount * self._cost_ms
        self.used += amount
        if not self.is_active:
            self.is_active = True
            if self.used_first is not None:
                self.used_first()
        if paid_ms > now_ms:
            self.is_pressed = True
        return paid_ms - now_ms

    def room(self, now_ms: int, ahead_ms: int = 0) -> int:
        """How much may be used before more is owed than is paid in `ahead_ms`; below zero: it
        is.
        """
        free_ms = min(now_ms - self._paid_ms, BURST_MS) + ahead_ms
        return int((free_ms + _ROUNDING_MS) // self._cost_ms)

    def delay_ms(self, now_ms: int) -> float:
        """After how long nothing is owed any more; not above 0: nothing is."""
        return self._paid_ms - now_ms

    def is_far_over(self, now_ms: int) -> bool:
        """Whether so much is owed that more is refused."""
        return self._paid_ms - now_ms > self.patience_ms
