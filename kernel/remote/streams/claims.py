"""How long a new leader waits for what gateways claim before it hands anything out that the last
one may have handed out (`broker.claims`).

Until each gateway that is known to consume has claimed in this term, but not before `settle_in_ms`
of the process, in which they find their way back; or until `claim_ms` have passed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ...common.ids import RaftGroup
from .gateways import ConsumingGateway
from .led_groups import LedGroups


class ClaimWindows:
    """The times within which gateways may claim what they hold, by group."""

    def __init__(
        self,
        led: LedGroups,
        gateways: Mapping[str, ConsumingGateway],
        claim_ms: int,
        settle_in_ms: int,
    ) -> None:
        self._led = led
        self._gateways = gateways
        self._loop = asyncio.get_running_loop()
        self._claim_ms = claim_ms
        self._settled_in = self._loop.time() + settle_in_ms / 1_000
        self._timers: dict[RaftGroup, asyncio.TimerHandle] = {}

    def begin(self, group: RaftGroup) -> None:
        """A group is served here from now on."""
        later = self._loop.call_later
        self._timers[group] = later(self._claim_ms / 1_000, self._over, group)
        later(max(self._settled_in - self._loop.time(), 0), self.look)

    def end(self, group: RaftGroup) -> None:
        """It is not served here any more."""
        timer = self._timers.pop(group, None)
        if timer is not None:
            timer.cancel()

    def look(self) -> None:
        """Somebody has claimed, or will not: end the wait where all have."""
        if self._loop.time() < self._settled_in:
            return
        for group in list(self._timers):
            term = self._led.standing(group)[0]
            if all(each.claimed.get(group) == term for each in self._gateways.values()):
                self._over(group)

    def _over(self, group: RaftGroup) -> None:
        timer = self._timers.pop(group, None)
        if timer is not None:
            timer.cancel()
            self._led.replica(group).claims_over()
