"""Who may be read in this turn of the event loop, when several tenants want to be.

The event loop reads whatever is there from every connection, all of it is parsed at once, and one
write takes all that came of it. So whoever has many connections and much to say makes turns and
commits long for everybody: sixty-four that flood cost another tenant's message most of a second.

While two tenants or more are *active* (have sent something in the last `ACTIVE_MS`), reading is
shared out: what came is taken a part at a time, in deficit round robin by tenant and then by
connection (`kernel.common.fairness`), for at most `TURN_US` in a turn of the loop, and until
`ROUND_BYTES_MAX` or one message of a tenant are in a commit (`WriteRounds`). What has come and has
no turn yet stays with its connection, which is not read from meanwhile, nor taken for silent. Who
wants little does not wait at all: `PART_BYTES_MAX` of a tenant are taken as they come.

One tenant alone is read at full speed: `alone` is all that is asked.

    nobody ─one sends─► alone ─another sends─► shared ─one is left for ACTIVE_MS─► alone

Whoever has not signed in is nobody's tenant: they never make reading shared, and all of them
together are as one tenant while it is.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakKeyDictionary

from kernel.common.fairness import DeficitRing, Share

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from kernel.api.client import Client
    from kernel.common.fairness import WriteRounds

    Soon = Callable[[Callable[[], None]], object]
    Later = Callable[[float, Callable[[], None]], asyncio.TimerHandle]

TURN_US: Final = 2_000
"""Of reading, in one turn of the event loop: so long anybody waits for others' input."""

WAITING_US: Final = 1_500
"""Of these for what waits for its turn; the rest is for what comes in this turn."""

PART_US: Final = 500
"""Of one connection at a time, about: a part is made as large as takes so long."""

PART_BYTES_MIN: Final = 1_024
PART_BYTES: Final = 8 * 1_024
PART_BYTES_MAX: Final = 32 * 1_024
"""Least, first and most of one connection at a time. With fewer bytes the batches that come of them
are too small to be worth their cost."""

QUANTUM: Final = 16 * 1_024
"""Bytes of a tenant in one round of the ring."""

COST_MIN: Final = 1_024
"""What a part costs at least: very small ones are not for nothing."""

ROUND_BYTES_MAX: Final = 256 * 1_024
"""Of a tenant in one commit: some 3 ms of a disk of 100 MB/s, and as much CPU for messages of 1 KB.
With twice as much others wait twice as long (ADR 28), and who sends gains nothing."""

ROUND_MS_MAX: Final = 50
"""A commit that takes longer is waited for no more: perhaps a group has no leader. 256 KiB in 50 ms
are 5 MB/s; what may be under way at all the kernel bounds."""

BYTES_IN_A_MS: Final = 20_000
"""A commit of more takes its time: nobody enters it before so many bytes a millisecond are over."""

LONGEST_ROUND_MS: Final = 1_000
"""But no longer than that."""

ACTIVE_MS: Final = 10_000
"""Who has sent nothing for so long does not share any more."""

TENANTS_MAX: Final = 4_096
"""Tenants that are remembered: beyond that those who are not active are forgotten. With signing-in
switched off a client may call itself anything."""

LOOK_US: Final = 1_000_000
"""So often is looked who is still active."""


class Reading(Protocol):
    """A connection, as far as its input is shared out."""

    work_us: int
    """What a part costs beside the time that `take_part` takes: work that it begins."""

    def has_part(self) -> bool:
        """Whether it has something to take now."""

    def take_part(self, most_bytes: int) -> int:
        """Take so many bytes at most, or one request; what it was, in bytes."""


class Place(Share):
    """Of one connection in its tenant's ring."""

    __slots__ = ("part_bytes", "reading", "tenant")

    def __init__(self, reading: Reading, tenant: TenantShare) -> None:
        super().__init__()
        self.reading = reading
        self.tenant = tenant
        self.part_bytes = PART_BYTES


class TenantShare(Share):
    """One tenant that shares."""

    __slots__ = ("active_us", "name", "places", "round_bytes", "turn", "turn_bytes", "write_round")

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.places: DeficitRing[Place] = DeficitRing(QUANTUM)
        """Its connections that have something to take."""
        self.active_us = -ACTIVE_MS * 1_000
        self.write_round = -1
        self.round_bytes = 0
        """Submitted in that round of writes."""
        self.turn = -1
        self.turn_bytes = 0
        """Taken as it came, in that turn."""


NOBODY: Final = TenantShare("")
"""Who is alone while nobody is active."""

SEVERAL: Final = TenantShare("*")
"""Who is alone while several are active: no tenant has this one."""


class FairCounts:
    """Since the process began."""

    __slots__ = ("at_once", "forced", "held", "parts", "shared", "turns")

    def __init__(self) -> None:
        self.shared = 0
        """Times that reading began to be shared out."""
        self.turns = 0
        """Turns of the loop in which something waited."""
        self.parts = 0
        """Parts that were taken when it was their turn."""
        self.at_once = 0
        """Parts taken as they came."""
        self.held = 0
        """Times that all who waited had had their bytes of a commit."""
        self.forced = 0
        """Of these, the times that the commit took longer than ROUND_MS_MAX."""


class FairScheduler:
    """Shares out the reading of one process."""

    def __init__(
        self,
        rounds: WriteRounds,
        soon: Soon,
        later: Later,
        now_us: Callable[[], int],
        note_active: Callable[[str], None] = lambda _tenant: None,
    ) -> None:
        """`soon(action)` calls it in the next turn of the loop, `later(seconds, action)` then;
        `note_active` hears the name of the tenant that is `alone`.
        """
        self._rounds = rounds
        self._soon = soon
        self._later = later
        self._now_us = now_us
        self._note_active = note_active
        self.alone: TenantShare = NOBODY
        """The only active tenant, which reads as it likes; SEVERAL: reading is shared out."""
        self.strangers = TenantShare("")
        """Of who has not signed in."""
        self._tenants: dict[str, TenantShare] = {}
        self._ring: DeficitRing[TenantShare] = DeficitRing(QUANTUM)
        self._turn_is_due = False
        self._turn = 0
        self._used_us = 0
        self._looked_us = 0
        self._timer: asyncio.TimerHandle | None = None
        self.counts = FairCounts()

    def tenant(self, name: str) -> TenantShare:
        """One tenant's share; for as long as it is active the same."""
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = self._tenants[name] = TenantShare(name)
        return tenant

    @property
    def is_shared(self) -> bool:
        """Whether several tenants are active."""
        return self.alone is SEVERAL

    @property
    def waiting(self) -> int:
        """Tenants that have something to take."""
        return len(self._ring)

    def sends(self, tenant: TenantShare) -> bool:
        """A tenant that is not alone sends something: whether it is to be taken in turn."""
        now_us = self._now_us()
        if self.alone is SEVERAL and now_us - self._looked_us >= LOOK_US:
            self._look(now_us)
        if tenant is self.strangers:
            return self.alone is SEVERAL
        tenant.active_us = now_us
        if self.alone is NOBODY:
            self._leave_alone(tenant)
        elif self.alone is not SEVERAL and self.alone is not tenant:
            # When it has sent last nobody has asked.
            self.alone.active_us = self._looked_us = now_us
            self._leave_alone(SEVERAL)
            self.counts.shared += 1
        return self.alone is SEVERAL

    def _look(self, now_us: int) -> None:
        self._looked_us = now_us
        oldest_us = now_us - ACTIVE_MS * 1_000
        active = [
            each for each in self._tenants.values() if each.is_in or each.active_us > oldest_us
        ]
        if len(active) < 2:
            self._leave_alone(active[0] if active else NOBODY)
        if len(self._tenants) > TENANTS_MAX:
            self._tenants = {each.name: each for each in active}

    def _leave_alone(self, tenant: TenantShare) -> None:
        self.alone = tenant
        self._note_active(tenant.name)

    # --- What comes ------------------------------------------------------------------------

    def at_once(self, tenant: TenantShare, size: int) -> bool:
        """Whether what has come is to be taken without waiting; then `taken` is to be called."""
        if tenant.is_in or self._used_us >= TURN_US:
            return False
        if tenant.turn != self._turn:
            tenant.turn, tenant.turn_bytes = self._turn, 0
        return tenant.turn_bytes + size <= PART_BYTES_MAX and self._may_enter(tenant)

    def take_at_once(self, tenant: TenantShare, size: int, take: Callable[[], None]) -> None:
        """Take what has come: `at_once` has said so."""
        before, began_us = self._rounds.submitted_bytes, self._now_us()
        take()
        self.took_at_once(tenant, size, self._now_us() - began_us)
        self.submits(tenant, self._rounds.submitted_bytes - before)

    def took_at_once(self, tenant: TenantShare, size: int, used_us: int) -> None:
        """What had come was taken, or is being: `at_once` has said so."""
        self._have_turn()
        self.counts.at_once += 1
        self._used_us += used_us
        tenant.turn_bytes += size

    def wait(self, place: Place) -> None:
        """A connection has something to take when it is its turn. Idempotent."""
        place.tenant.places.enter(place)
        self._ring.enter(place.tenant)
        self._have_turn()

    def leave(self, place: Place) -> None:
        """A connection has nothing to take any more. Idempotent."""
        place.tenant.places.leave(place)
        if not len(place.tenant.places):
            self._ring.leave(place.tenant)

    # --- Turns -----------------------------------------------------------------------------

    def _have_turn(self) -> None:
        if not self._turn_is_due:
            self._turn_is_due = True
            self._soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_is_due = False
        self._turn += 1
        self._used_us = 0
        if not len(self._ring):
            return
        self.counts.turns += 1
        self._rounds.look()
        now_us = self._now_us()
        until_us = now_us + WAITING_US
        try:
            while now_us < until_us and (tenant := self._ring.next(self._may_enter)) is not None:
                before_us = now_us
                work_us = self._take_of(tenant, before_us)
                now_us = self._now_us()
                self._used_us += now_us - before_us + work_us
                until_us -= work_us
        finally:
            self._go_on()

    def _take_of(self, tenant: TenantShare, began_us: int) -> int:
        """Have the next connection of a tenant take a part; what that costs later."""
        place = tenant.places.next()
        assert place is not None
        reading = place.reading
        if not reading.has_part():
            self.leave(place)
            return 0
        self.counts.parts += 1
        before, most = self._rounds.submitted_bytes, place.part_bytes
        size = most
        try:
            size = reading.take_part(most)
        finally:
            cost = max(size, COST_MIN)
            self.submits(tenant, self._rounds.submitted_bytes - before)
            tenant.places.charge(place, cost)
            self._ring.charge(tenant, cost)
            if not reading.has_part():
                self.leave(place)
        took_us = self._now_us() - began_us
        if took_us > PART_US:
            place.part_bytes = max(PART_BYTES_MIN, most // 2)
        elif took_us < PART_US // 3 and size >= most:
            place.part_bytes = min(PART_BYTES_MAX, most * 2)
        return reading.work_us

    def submits(self, tenant: TenantShare, size: int) -> None:
        """So much of a tenant goes into the commit that is being filled. What is submitted while a
        part is taken is counted by itself; to be called for what is submitted later.
        """
        if tenant.write_round != self._rounds.number:
            tenant.write_round, tenant.round_bytes = self._rounds.number, 0
        tenant.round_bytes += size

    def _may_enter(self, tenant: TenantShare) -> bool:
        """Whether a tenant may add to the commit that is being filled."""
        return (
            tenant.round_bytes < ROUND_BYTES_MAX
            or tenant.write_round != self._rounds.number
            or self.alone is not SEVERAL
        )

    def _go_on(self) -> None:
        """After a turn: in the next one, or in the next commit."""
        if not len(self._ring):
            return
        if self._ring.next(self._may_enter) is not None:
            self._have_turn()
        elif self._timer is None:
            self.counts.held += 1
            commit_ms = self._rounds.bytes_under_way // BYTES_IN_A_MS
            wait_ms = min(LONGEST_ROUND_MS, max(ROUND_MS_MAX, commit_ms))
            self._timer = self._later(wait_ms / 1_000, self._overdue)
            self._rounds.when_over(self._round_over)

    def _round_over(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._have_turn()

    def _overdue(self) -> None:
        self._timer = None
        self.counts.forced += 1
        self._rounds.end()


_SCHEDULERS: WeakKeyDictionary[Client, FairScheduler] = WeakKeyDictionary()


def fair_scheduler_of(client: Client, loop: asyncio.AbstractEventLoop) -> FairScheduler:
    """That of a process, whatever its connections speak: each client of the kernel has one."""
    scheduler = _SCHEDULERS.get(client)
    if scheduler is None:
        scheduler = _SCHEDULERS[client] = FairScheduler(
            client.rounds, loop.call_soon, loop.call_later, _now_us, client.note_active
        )
    return scheduler


def _now_us() -> int:
    # What a turn costs is its own time; the loop's own clock stands still meanwhile.
    return time.perf_counter_ns() // 1_000
