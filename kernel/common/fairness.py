"""Whose turn it is, among those who want more than there is: deficit round robin, and what a commit
takes of each.

    Share        one who shares: what it may still take in this round of the ring
    DeficitRing  those who want something now; `next` says who, `Share.credit` what it has left
    WriteRounds  commits as a client of the kernel sees them, wherever its leaders are

Each who wants something has a *quantum* in every round of the ring, and is served while it has
credit. What a piece of work costs is known when it is done: so credit may fall below zero, and the
rounds that pay for it are gone without (deficit round robin, Shreedhar and Varghese 1995, with
debts, since sizes are not known before). Who leaves the ring leaves its credit there and keeps its
debt, less what it would have been given meanwhile: to come back in small pieces pays nothing off.

Pure: no clock, no loop. Costs are in any unit, as long as all use the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar


class Share:
    """One who shares with others. Subclasses add what is shared out."""

    __slots__ = ("credit", "is_in", "round")

    def __init__(self) -> None:
        self.credit = 0
        """What it may take before the next has its turn; below zero it owes."""
        self.round = 0
        """Of the ring, when it was last given a quantum."""
        self.is_in = False
        """Whether it wants something. It shares in one ring at a time."""


ShareT = TypeVar("ShareT", bound=Share)


def everybody(_share: object) -> bool:
    """Nobody is left out."""
    return True


class DeficitRing(Generic[ShareT]):
    """Those who want something now, in the order in which they have their turn."""

    __slots__ = ("_ring", "_round", "quantum")

    def __init__(self, quantum: int) -> None:
        """`quantum`: what each has in a round, above zero."""
        self.quantum = quantum
        self._ring: deque[ShareT] = deque()
        self._round = 0

    def __len__(self) -> int:
        return len(self._ring)

    def enter(self, share: ShareT) -> None:
        """It wants something from now on. Idempotent."""
        if share.is_in:
            return
        share.is_in = True
        if share.credit < 0:
            gone = max(0, self._round - share.round)
            share.credit = min(0, share.credit + gone * self.quantum)
        share.round = self._round
        self._ring.append(share)

    def leave(self, share: ShareT) -> None:
        """It wants nothing more for now. Idempotent."""
        if not share.is_in:
            return
        share.is_in = False
        share.credit = min(0, share.credit)
        if self._ring[0] is share:
            self._ring.popleft()
        else:
            self._ring.remove(share)

    def next(self, may: Callable[[ShareT], bool] = everybody) -> ShareT | None:
        """Whose turn it is, of those who `may`; None: there is none. It stays first, and so is next
        again, while it has credit.
        """
        ring = self._ring
        while True:
            nearest: int | None = None
            for _ in range(len(ring)):
                share = ring[0]
                if may(share):
                    if share.credit <= 0:
                        self._give(share)
                    if share.credit > 0:
                        return share
                    nearest = share.credit if nearest is None else max(nearest, share.credit)
                ring.rotate(-1)
            if nearest is None:
                return None
            # All owe: rounds in which nobody could take anything are not gone through one by one.
            self._pass(-nearest // self.quantum)

    def _give(self, share: ShareT) -> None:
        """Its turn has come."""
        if share.round >= self._round:
            self._round += 1
        share.round = self._round
        share.credit += self.quantum

    def _pass(self, rounds: int) -> None:
        """So many rounds in which nobody could take anything."""
        self._round += rounds
        for share in self._ring:
            share.credit = min(share.credit + rounds * self.quantum, self.quantum)
            share.round = self._round

    def charge(self, share: ShareT, cost: int) -> None:
        """It has taken so much; with nothing left the next has its turn."""
        share.credit -= cost
        if share.credit <= 0 and self._ring and self._ring[0] is share:
            self._ring.rotate(-1)


class WriteRounds:
    """Commits, as a process sees them that hands batches over and hears when they are done.

    A round ends when all that was handed over before it began has been answered. A store that
    writes one commit while the next one fills makes a round of each: who hands over so much in a
    round has at most twice that on the way. A group without a leader ends no round; who waits for
    one waits for some time at most, and calls `end`.
    """

    __slots__ = (
        "_answered",
        "_began_bytes",
        "_boundary",
        "_submitted",
        "_waiting",
        "number",
        "submitted_bytes",
    )

    def __init__(self) -> None:
        self.number = 0
        """Of the round."""
        self.submitted_bytes = 0
        """All that was ever handed over."""
        self._submitted = 0
        self._answered = 0
        self._began_bytes = 0, 0
        self._boundary = 0
        self._waiting: Callable[[], object] | None = None

    def submitted(self, size_bytes: int) -> None:
        """A batch is handed over (hot)."""
        self._submitted += 1
        self.submitted_bytes += size_bytes

    @property
    def bytes_under_way(self) -> int:
        """Submitted in this round and in the one before."""
        return self.submitted_bytes - self._began_bytes[0]

    def answered(self, batches: int) -> None:
        """So many more are answered, the oldest first."""
        self._answered += batches
        if self._waiting is not None and self._answered >= self._boundary:
            self.end()

    def look(self) -> int:
        """Begin a round if one is over; the number of the one that goes on."""
        if self._answered >= self._boundary:
            self.end()
        return self.number

    def end(self) -> None:
        """Begin a round in any case."""
        self.number += 1
        self._began_bytes = self._began_bytes[1], self.submitted_bytes
        self._boundary = self._submitted
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting()

    def when_over(self, action: Callable[[], object] | None) -> None:
        """Call `action` once, at the end of the round; None: nobody waits any more."""
        self._waiting = action
