"""Which gateway's calls are carried out next, while several are active.

One write takes all open entries. So whatever one gateway sends goes to the disk ahead of a small
message by another one, which may have been waiting for its turn among that gateway's tenants alone.
While two gateways or more are active (have sent a batch within the last `ACTIVE_COMMITS` commits),
`COMMIT_BYTES_MAX` or one call of each go into a commit, in deficit round robin
(`kernel.common.fairness`). What is above that waits here, and all that comes by the same connection
waits behind it, as if it had come later. One gateway alone costs one comparison a call.

What waits is bounded by what a gateway may have under way (`lane_service.BYTES_MAX`): whoever has
more than that waiting has all of it carried out at once, so that nothing changes its order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from ...common.fairness import DeficitRing, Share

COMMIT_BYTES_MAX: Final = 512 * 1024
"""Of a gateway in one commit: takes a disk of 100 MB/s some 5 ms."""

TURN_BYTES: Final = 256 * 1024
"""Of all that waits, in one turn of the event loop: some 2 ms."""

QUANTUM: Final = 64 * 1024
"""Of a gateway in a round: a call of usual length."""

CALL_COST_BYTES: Final = 1_024
"""What a call costs at least."""

STUCK_MS: Final = 5
"""So long a commit is waited for that has not begun: perhaps its group is about to get a leader."""

ACTIVE_COMMITS: Final = 256
"""Of a store under load: a second or some."""


class CommitHost(Protocol):
    """What is asked of the store (`store.node.Store`)."""

    commits: int
    """Since it began."""

    @property
    def is_writing(self) -> bool:
        """Whether a commit is on its way to the disk."""

    @property
    def is_idle(self) -> bool:
        """Whether none is, and nothing waits for one."""

    def when_written(self, action: Callable[[], None]) -> None:
        """Call `action` once, after the commit that is on its way."""

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> object:
        """Call `action` after so long."""


class GatewayShare(Share):
    """One gateway's connection."""

    __slots__ = ("active", "commit", "commit_bytes", "waiting", "waiting_bytes")

    def __init__(self) -> None:
        super().__init__()
        self.active = -ACTIVE_COMMITS
        """The commit before which it has sent a batch."""
        self.commit = -1
        self.commit_bytes = 0
        """Carried out for that commit."""
        self.waiting: deque[tuple[int, Callable[[], None]]] = deque()
        """(bytes, action), in their order."""
        self.waiting_bytes = 0


NOBODY: Final = GatewayShare()
SEVERAL: Final = GatewayShare()


class FairGateways:
    """Those of one store."""

    def __init__(
        self, host: CommitHost, soon: Callable[[Callable[[], None]], object], waiting_max: int
    ) -> None:
        """`waiting_max`: bytes of one gateway that wait at most."""
        self._host = host
        self._soon = soon
        self._waiting_max = waiting_max
        self._shares: dict[GatewayShare, None] = {}
        self._ring: DeficitRing[GatewayShare] = DeficitRing(QUANTUM)
        self._is_due = False
        self.alone: GatewayShare = NOBODY
        """The only active one, of which nothing waits; SEVERAL: calls are carried out in turn."""
        self.held = 0
        """Calls that have waited since this process began."""

    def opened(self) -> GatewayShare:
        """A gateway has connected."""
        share = GatewayShare()
        self._shares[share] = None
        return share

    def closed(self, share: GatewayShare) -> None:
        """It is gone: what waits is not carried out, and nobody has heard of it."""
        self._shares.pop(share, None)
        share.waiting.clear()
        share.waiting_bytes = 0
        self._ring.leave(share)
        if self.alone is share:
            self.alone = NOBODY

    def waits(self, share: GatewayShare, size: int, action: Callable[[], None]) -> bool:
        """Whether a batch of so many bytes has to wait: then it is carried out by `action`. To be
        asked unless the gateway is `alone`.
        """
        commits = self._host.commits
        share.active = commits
        if self.alone is NOBODY:
            self.alone = share
        elif self.alone is not SEVERAL and self.alone is not share:
            self.alone.active = commits
            self.alone = SEVERAL
        elif self.alone is SEVERAL and not len(self._ring):
            self._look(commits)
        if self.waits_behind(share, size, action):
            return True
        if self.alone is not SEVERAL or self._may_enter(share):
            self._enters(share, size)
            return False
        self._append(share, size, action)
        return True

    def waits_behind(self, share: GatewayShare, size: int, action: Callable[[], None]) -> bool:
        """Whether something that is no batch has to wait behind those that do."""
        if share.waiting and share.waiting_bytes + size > self._waiting_max:
            while share.waiting:
                self._next_of(share)
        if not share.waiting:
            return False
        self._append(share, size, action)
        return True

    def _append(self, share: GatewayShare, size: int, action: Callable[[], None]) -> None:
        self.held += 1
        share.waiting.append((size, action))
        share.waiting_bytes += size
        self._ring.enter(share)
        self._have_turn()

    def _look(self, commits: int) -> None:
        active = [each for each in self._shares if commits - each.active < ACTIVE_COMMITS]
        if len(active) < 2:
            self.alone = active[0] if active else NOBODY

    def _enters(self, share: GatewayShare, size: int) -> None:
        if share.commit != self._host.commits:
            share.commit, share.commit_bytes = self._host.commits, 0
        share.commit_bytes += size

    def _may_enter(self, share: GatewayShare) -> bool:
        """Whether a gateway may add to the commit that is being filled."""
        host = self._host
        return share.commit != host.commits or share.commit_bytes < COMMIT_BYTES_MAX or host.is_idle

    def _have_turn(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._soon(self._turn)

    def _turn(self) -> None:
        self._is_due = False
        left = TURN_BYTES
        while left > 0 and (share := self._ring.next(self._may_enter)) is not None:
            cost = max(CALL_COST_BYTES, share.waiting[0][0])
            left -= cost
            self._ring.charge(share, cost)
            self._next_of(share)
        if not len(self._ring):
            return
        if left <= 0:
            self._have_turn()
        elif self._host.is_writing:
            self._is_due = True
            self._host.when_written(self._turn)
        else:
            self._is_due = True
            self._host.call_later(STUCK_MS, self._go_on)

    def _go_on(self) -> None:
        """No commit has begun: whatever it waits for is no reason for others to wait."""
        for share in self._shares:
            share.commit = -1
        self._turn()

    def _next_of(self, share: GatewayShare) -> None:
        """Carry out what has waited longest of one gateway."""
        size, action = share.waiting.popleft()
        share.waiting_bytes -= size
        if not share.waiting:
            self._ring.leave(share)
        self._enters(share, size)
        action()
