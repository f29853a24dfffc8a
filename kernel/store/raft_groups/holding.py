"""A moment in which nothing that this store's groups commit is applied: for the cut of a cluster.

Whatever one group does because of another begins with something that was applied somewhere: an ok,
a delivery, a dead letter that has arrived. If no store applies anything from before the first cut
to behind the last one, no cut has an entry whose cause is missing in another cut (ADR 34). Raft
goes on meanwhile: entries are sent, written, committed, and nobody hears of it.

A store that is not asked, for it is down or cannot be reached, may run and lead all the same. Those
who hold do not hear it and send it nothing: without them it commits nothing, and hears of nothing
that they have committed, so that it has nothing new to apply. They are a majority of every group's
voters, and so is whoever elects a leader of what was cut: one of these has what was committed.

    hold(cut, stores) -> held -> release(cut): as it was promised
                              -> HOLD_MS later by itself: whoever has asked may be gone, and what
                                 it cut does not count
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from ...common.errors import Code, KernelError
from ...raft.core import RaftCore
from ...raft.messages import Entry
from .member import Member

HOLD_MS = 500
"""Longest: every publisher waits for as long. What has to be kept meanwhile is what publishers have
under way, and that is bounded where it comes in. Two round trips to the slowest store are meant."""


class _Timer(Protocol):
    def cancel(self) -> None: ...


class Holding:
    """See the module's head."""

    __slots__ = (
        "_apply",
        "_call_later",
        "_cut",
        "_kept",
        "_timer",
        "holds",
        "is_held",
        "kept",
        "lapsed",
        "released",
        "stores",
    )

    def __init__(
        self,
        call_later: Callable[[int, Callable[[], None]], _Timer],
        apply: Callable[[Member, Sequence[Entry]], None],
    ) -> None:
        """`apply`: entries that a member's core has handed out, in their order."""
        self._call_later = call_later
        self._apply = apply
        self._kept: deque[tuple[Member, RaftCore, Sequence[Entry]]] = deque()
        self._timer: _Timer | None = None
        self._cut = 0
        self.is_held = False
        self.stores: Collection[int] = ()
        """While it is held: who holds as well; nothing is heard from others, or sent to them."""
        self.released: Callable[[], None] = lambda: None
        """Called once all that was kept is applied."""
        self.holds = 0
        """This and the two below: since the start."""
        self.lapsed = 0
        """Holds that nobody has ended in time."""
        self.kept = 0
        """Entries that had to wait."""

    def hold(self, cut: int, stores: Collection[int]) -> None:
        """Apply nothing from now on, and have to do with none but these stores, who hold as well: a
        majority of every group. `cut`: 64 bits that whoever asks has drawn for this one cut. A
        store that starts again in the middle knows nothing of it; were cuts counted here, the next
        one would have the number of the one before. Raises KernelError IN_USE: it is held already.
        """
        if self.is_held:
            raise KernelError(Code.IN_USE, "a cut of the cluster is being made: one at a time")
        self._cut = cut
        self.is_held = True
        self.stores = frozenset(stores)
        self.holds += 1
        self._timer = self._call_later(HOLD_MS, self._lapse)

    def keep(self, member: Member, committed: Sequence[Entry]) -> None:
        """While it is held: what would be applied now."""
        self.kept += len(committed)
        self._kept.append((member, member.core, committed))

    def release(self, cut: int) -> bool:
        """Go on. Whether nothing was applied since `hold` for this cut: if not, what was cut
        meanwhile does not belong together.
        """
        if not self.is_held or cut != self._cut:
            return False
        self._end()
        return True

    def stop(self) -> None:
        """The store stops: what is committed is applied before."""
        if self.is_held:
            self._end()

    def _lapse(self) -> None:
        self.lapsed += 1
        self._end()

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            # What comes meanwhile of the same member stands behind what was kept of it.
            while self._kept:
                member, core, committed = self._kept.popleft()
                # A snapshot may have taken the place of the state, or the group was left.
                if core is member.core:
                    new = [each for each in committed if each.index > member.state.applied]
                    if new:
                        self._apply(member, new)
        finally:
            self.is_held = False
        self.released()
