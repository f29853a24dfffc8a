"""How much of a turn of the event loop goes into handing out messages, and who comes next.

Whoever consumes a deep backlog is handed as much as it has credit for, a thousand messages say, and
all that this turn has for others waits meanwhile. So while another tenant is active, a turn hands
out one part. Who comes besides and has but a few messages gets them; who has more waits for a turn
of its own, a tenant after the other.

Who waits is once in here, so that no more wait than there are queues with consumers. Sans-I/O: a
later turn is asked for with `soon`.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PART_MESSAGES = 128
"""What one turn hands out at once: half a millisecond, with what is written to sockets and with the
acks that come of it. Twice as much has others wait a millisecond more (ADR 28)."""

FEW_MESSAGES = 16
"""What is handed out in any turn: to wait would cost more. Who has more gets none of it before its
turn: many small deliveries of a backlog would cost more, too."""

ALL = sys.maxsize
"""No part: as much as there is credit for."""


class DeliveryScheduler:
    """The turns of one event loop."""

    __slots__ = ("_is_asked", "_soon", "_waiting", "alone", "few", "is_taken", "part", "put_offs")

    def __init__(self, soon: Callable[[Callable[[], None]], object]) -> None:
        """`soon(action)` calls it in a later turn of the loop."""
        self.alone = ""
        """The only tenant that is active, whose backlogs give way to nobody; empty: none is, "*":
        several are (hot)."""
        self.part = PART_MESSAGES
        self.few = FEW_MESSAGES
        self.is_taken = False
        """Whether whoever has more than a few messages to hand out is to be `put_off` (hot)."""
        self.put_offs = 0
        """How often one has waited for its turn."""
        self._soon = soon
        self._is_asked = False
        self._waiting: dict[str, deque[Callable[[], None]]] = {}
        """By tenant, in the order in which they have their turn."""

    def took(self, messages: int) -> None:
        """So many were handed out at once."""
        if messages > self.few:
            self.is_taken = True
            self._ask()

    def put_off(self, tenant: str, action: Callable[[], None]) -> None:
        """Call `action`, which hands out a part, when it is its turn."""
        self.put_offs += 1
        self.is_taken = True
        self._waiting.setdefault(tenant, deque()).append(action)
        self._ask()

    @contextmanager
    def exempt(self) -> Iterator[None]:
        """What is handed out in here waits for no turn."""
        was_taken, self.is_taken = self.is_taken, False
        try:
            yield
        finally:
            self.is_taken |= was_taken

    def _ask(self) -> None:
        if not self._is_asked:
            self._is_asked = True
            self._soon(self._turn)

    def _turn(self) -> None:
        self._is_asked = False
        self.is_taken = False
        if not self._waiting:
            return
        tenant = next(iter(self._waiting))
        actions = self._waiting.pop(tenant)
        action = actions.popleft()
        if actions:
            self._waiting[tenant] = actions
        action()
        if self._waiting:
            # Who comes meanwhile goes behind them.
            self.is_taken = True
            self._ask()
