"""One limit at work, as a bucket of tokens that may be overdrawn.

    tokens come in at the rate, up to those of a second
    what was used is taken out, whatever is in it
    below zero: owed. Who owes waits until nothing is owed; who owes more than a second is refused

So one look at the balance before and one subtraction after are the whole check, a message larger
than a second's tokens still passes, and over any time not more is used than the rate allows, but
for a second's tokens at its beginning and what one look lets through.
"""

from __future__ import annotations

from typing import Final

BURST_MS: Final = 1_000
"""So much of the rate may be used at once: clients send what they have collected, once a second."""

FAR_OVER_MS: Final = 1_000
"""Who owes more than is paid in so long is refused, where the protocol has a word for that."""

_THOUSANDTHS: Final = 1_000
"""Whole numbers: a rate a second is so many thousandths each millisecond."""


class Bucket:
    """Time is milliseconds of one clock that never goes back."""

    __slots__ = ("_at_ms", "_balance", "rate", "reason")

    def __init__(self, rate: int, reason: str, now_ms: int) -> None:
        """`rate`: of a second, above 0. `reason`: which limit it is, as counters say it."""
        self.rate = rate
        self.reason = reason
        self._balance = rate * BURST_MS
        self._at_ms = now_ms

    def change(self, rate: int) -> None:
        """The limit is another one now; what is owed stays owed."""
        self.rate = rate
        self._balance = min(self._balance, rate * BURST_MS)

    def take(self, now_ms: int, amount: int) -> None:
        """So much was used (hot)."""
        self._balance = self._paid(now_ms) - amount * _THOUSANDTHS

    def room(self, now_ms: int) -> int:
        """How much may be used before anything is owed; below zero: what is owed."""
        self._balance = self._paid(now_ms)
        return self._balance // _THOUSANDTHS

    def delay_ms(self, now_ms: int) -> int:
        """After how long nothing is owed any more; 0: nothing is."""
        balance = self._balance = self._paid(now_ms)
        return -(balance // self.rate) if balance < 0 else 0

    def is_far_over(self, now_ms: int) -> bool:
        """Whether more is owed than is paid in FAR_OVER_MS."""
        return self.delay_ms(now_ms) > FAR_OVER_MS

    def is_full(self, now_ms: int) -> bool:
        """Whether it is as a new one would be."""
        return self._paid(now_ms) >= self.rate * BURST_MS

    def _paid(self, now_ms: int) -> int:
        """The balance, with what has come in since."""
        balance = self._balance + (now_ms - self._at_ms) * self.rate
        self._at_ms = now_ms
        most = self.rate * BURST_MS
        return min(balance, most)
