"""A store's log lines about who leads the groups: what an operator reads after a pause.

    leader              group, store, term, without_ms: how long this store knew of none
    no leader           group, term
    serves the group    group, term, after_ms: since it was elected here, before which its clients
                        wait; it must apply what is committed first

A cluster that flaps would write without end, so that there are LINES_MAX lines a minute; the next
one says how many were left out (`unlogged`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from adapters.line_budget import LineBudget

if TYPE_CHECKING:
    from collections.abc import Sequence

    import structlog.typing

    from kernel.common.ids import RaftGroup
    from kernel.common.ports import Clock

LINES_MAX = 100
"""A minute: 16 groups that change their leader twice."""


class Leaders(Protocol):
    """What a store knows (`kernel.store.node.Store`)."""

    @property
    def groups(self) -> Sequence[RaftGroup]:
        """All of them."""

    def standing(self, group: RaftGroup) -> tuple[int, int]:
        """(term, number of the store that leads it, or 0)."""

    def serving(self, group: RaftGroup) -> object | None:
        """What serves it, if it is served here."""


class LeaderLog:
    """Of one store. `look` is to be called whenever anything of this may have changed."""

    def __init__(
        self, log: structlog.typing.FilteringBoundLogger, leaders: Leaders, clock: Clock
    ) -> None:
        self._log = log
        self._leaders = leaders
        self._clock = clock
        self._budget = LineBudget(clock, LINES_MAX)
        self._known: dict[RaftGroup, tuple[int, bool]] = {}
        """(who leads, whether it is served here)."""
        self._since_ms: dict[RaftGroup, int] = {}
        """When this store heard who leads, or that nobody does."""

    def look(self) -> None:
        """Write what is new."""
        for group in self._leaders.groups:
            term, leader = self._leaders.standing(group)
            serves = self._leaders.serving(group) is not None
            leader_before, served = self._known.get(group, (0, False))
            if leader != leader_before:
                self._leader_changed(group, term, leader, leader_before)
            if serves and not served:
                self._say("serves the group", group, term, after_ms=self._waited_ms(group))
            self._known[group] = leader, serves

    def _leader_changed(self, group: RaftGroup, term: int, leader: int, before: int) -> None:
        if not leader:
            self._say("no leader", group, term)
        else:
            without_ms = 0 if before else self._waited_ms(group)
            self._say("leader", group, term, store=leader, without_ms=without_ms)
        self._since_ms[group] = self._clock.monotonic_ms()

    def _waited_ms(self, group: RaftGroup) -> int:
        now_ms = self._clock.monotonic_ms()
        return now_ms - self._since_ms.get(group, now_ms)

    def _say(self, what: str, group: RaftGroup, term: int, **more: int) -> None:
        if self._budget.allows((what, group, term, more.get("store"))):
            unlogged = self._budget.unlogged()
            self._log.info(what, group=int(group), term=term, **more, unlogged=unlogged)
