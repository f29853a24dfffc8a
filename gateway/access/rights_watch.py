"""Revocation reaches who is connected: the one rule, for every protocol of this gateway.

Whoever asks for something is checked when they ask. What goes on after that (consumers,
subscriptions, waiting polls, the connection itself) was allowed when it began, and may not be any
more: a policy was altered, a user disabled. The user store's generation rises with each such
change, here as on every other gateway, whose copies follow the same log. Whenever it has risen,
everyone who is connected is asked to look at what they hold (`adapters.base.Holder`).

    generation unchanged -> look again in LOOK_S
    generation risen     -> a round: slices of SLICE_S with PAUSE_S between them, to its end

A round that has begun goes to its end, even if rights change again meanwhile: then another follows.
So a change reaches everyone within two rounds and LOOK_S, and a store that changes all the time
costs half of the loop's time at most. A hundred thousand idle connections are a round of about
half a second.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

import structlog

from gateway.process.slices import Slice

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator, Sequence

    from adapters.base import Adapter, Holder
    from auth.policies.policy_decisions import Generation

LOOK_S: Final = 0.2
"""How often the generation is looked at: one comparison. A tenth of the 2 s that are promised."""

SLICE_S: Final = 0.002
"""How long holders are asked before others have their turn: less than a client can tell."""

PAUSE_S: Final = 0.002
"""How long others have it then, at least."""

_log = structlog.get_logger("weir.rights")


class RightsWatch:
    """Of one gateway. Belongs to its event loop."""

    def __init__(
        self, source: Generation, adapters: Sequence[Adapter], loop: asyncio.AbstractEventLoop
    ) -> None:
        """`adapters`: those that serve; read anew for each round."""
        self._source = source
        self._adapters = adapters
        self._loop = loop
        self._generation = source.generation
        self._waiting: Iterator[Holder] = iter(())
        """Of this round, those that were not asked yet."""
        self._asked: Iterator[None] | None = None
        """What is left to do of the one that is being asked."""
        self._timer: asyncio.TimerHandle | None = None
        self.rounds = 0

    def start(self) -> None:
        """Look from now on, until `stop`."""
        self._timer = self._loop.call_later(LOOK_S, self._look)

    def stop(self) -> None:
        """Look no more. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        """Begin a round if there is reason to."""
        if self._generation == self._source.generation:
            self.start()
            return
        self._generation = self._source.generation
        # Of each adapter when its turn comes: who connects meanwhile was checked by newer rights.
        self._waiting = chain.from_iterable(each.holders() for each in self._adapters)
        self.rounds += 1
        self._slice()

    def _slice(self) -> None:
        piece = Slice(SLICE_S)
        while self._step():
            if piece.is_over:
                self._timer = self._loop.call_later(PAUSE_S, self._slice)
                return
        self.start()

    def _step(self) -> bool:
        """Ask one holder, or go on with one; False: the round is over."""
        try:
            if self._asked is None:
                holder = next(self._waiting, None)
                if holder is None:
                    return False
                self._asked = holder.recheck()
            if next(self._asked, self) is self:
                self._asked = None
        except Exception:  # noqa: BLE001 - a bug: the others are checked all the same
            self._asked = None
            _log.exception("rights not checked")
        return True
