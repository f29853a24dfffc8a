"""A store's part in a cut of the cluster, for a backup (ADR 34). `cluster_cut` asks for it.

Durability: nothing is written but second names of files that are there. What is pinned is what the
store would have after a loss of power at the moment of TAKE.
"""

from __future__ import annotations

from collections.abc import Callable

from ..store.node import Store
from ..store.space.pin_keeper import PinKeeper
from .messages import Cut, CutMembers, CutStep, CutTold
from .roster import Roster


class StoreCut:
    """Does the steps of cuts, one cut at a time."""

    def __init__(self, store: Store, pins: PinKeeper, roster: Roster) -> None:
        self._store = store
        self._pins = pins
        self._roster = roster
        self._waits = {CutStep.PREPARE: pins.prepare, CutStep.KEEP: pins.keep}
        self._at_once: dict[CutStep, Callable[[Cut], CutTold]] = {
            CutStep.HOLD: self._hold,
            CutStep.TAKE: self._take,
            CutStep.RELEASE: self._release,
            CutStep.DROP: self._drop,
        }

    def waits(self, asked: Cut) -> bool:
        """Whether a step takes time."""
        return asked.step in self._waits

    async def do(self, asked: Cut) -> CutTold:
        """A step that takes time. Raises KernelError (`PinKeeper.prepare`, `keep`)."""
        await self._waits[asked.step](asked.cut)
        return CutTold()

    def do_at_once(self, asked: Cut) -> CutTold:
        """Any other step. Raises KernelError: IN_USE (another cut is being made); NOT_FOUND
        (nothing is ready for it).
        """
        return self._at_once[asked.step](asked)

    def _hold(self, asked: Cut) -> CutTold:
        consensus = self._store.consensus
        consensus.holding.hold(asked.cut, asked.stores)
        found = {group: member.core.tracker.members for group, member in consensus.members.items()}
        groups = [
            CutMembers(group, list(each.voters), list(each.voters_outgoing))
            for group, each in found.items()
            if each.voters
        ]
        return CutTold(register=list(self._roster.records), groups=groups)

    def _take(self, asked: Cut) -> CutTold:
        self._pins.take(asked.cut)
        return CutTold()

    def _release(self, asked: Cut) -> CutTold:
        return CutTold(held=self._store.consensus.holding.release(asked.cut))

    def _drop(self, asked: Cut) -> CutTold:
        self._store.consensus.holding.release(asked.cut)
        self._pins.drop_cut(asked.cut)
        return CutTold()
