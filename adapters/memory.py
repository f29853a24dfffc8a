"""Memory budgets of a gateway: what its clients make it hold, one budget for input, one for output.

Two things grow by what somebody else does, or leaves undone:

* unfinished input: the part of a request, packet, frame or message that has come, while the rest of
  it has not. Whoever sends slowly, or stops in the middle, holds it.
* unread output: what was written for a client that does not read it, and what waits behind that.

Each has a budget (`Pool`), one for the whole gateway, whatever the protocol. A connection tells
what it holds where that may have changed: at the end of a socket read, at a flush, when writing
pauses. Never for each message; and one that holds nothing has no account (`Share`) at all.

When a budget is used up, connections are dropped in their protocol's own way, those with the most

    bytes of the whole address x square of the time since the connection last got on

first, until a sixteenth of the budget is free. So ten thousand connections of one address are
judged as one, a small client beside them is the last to go, and so is one that is large and quick:
a message of 16 MiB that comes in 20 ms costs less than 64 KB that stand there for ten seconds.
Getting on means that what is held has fallen to half of the most it was. What is younger than
`YOUNG_MS` is left alone until twice the budget is used, which is never exceeded.

An address is what `kernel.common.crowd.address_of` says. Clients behind one proxy are one.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import StrEnum
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING, Final

import structlog

from adapters.refused import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kernel.common.ports import Clock

    _Soon = Callable[[Callable[[], None]], object]

INPUT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Four of the largest messages, or a thousand clients with half a request of 64 KB."""

OUTPUT_BYTES_MAX: Final = 128 * 1024 * 1024
"""Five hundred clients that have stopped reading (`transport.WRITE_BUFFER_BYTES_MAX` each)."""

YOUNG_MS: Final = 1_000
"""A burst is over by then, or its client reads or writes too slowly."""

FREED: Final = 16
"""One part of so many is free when connections have been dropped: those go in some 20 ms, in which
nobody else is served, and who it is costs no more to find than there are addresses."""

DROPPED_TOGETHER_MAX: Final = 128
"""In one turn of the event loop, which takes some 20 ms: ten thousand that hold little would take
seconds. Only what is above twice the budget goes at once, however many that are."""

LOOK_MS: Final = 500
"""What a client holds while nothing is written to it is measured so often."""

_log = structlog.get_logger("weir.memory")


class Excess(StrEnum):
    """Why a connection was dropped."""

    UNFINISHED_INPUT = "unfinished_input"
    UNREAD_OUTPUT = "unread_output"


class Share:
    """What one connection holds of a budget."""

    __slots__ = ("address", "bytes", "drop", "measure", "peak", "since_ms")

    def __init__(
        self, address: str, drop: Callable[[], None], measure: Callable[[], int] | None
    ) -> None:
        self.address = address
        self.bytes = 0
        self.peak = 0
        self.since_ms = 0
        """When it last got on."""
        self.drop = drop
        self.measure = measure


class _Address:
    """What the connections of one address hold."""

    __slots__ = ("bytes", "shares")

    def __init__(self) -> None:
        self.bytes = 0
        # One that gives its first at no cost, however many were before it.
        self.shares: OrderedDict[Share, None] = OrderedDict()
        """In the order in which they last got on."""

    @property
    def slowest(self) -> Share:
        return next(iter(self.shares))

    def cost(self, now_ms: int) -> int:
        """Of its slowest, whose cost is the highest; 0: it holds nothing."""
        if not self.shares:
            return 0
        return self.bytes * (now_ms - self.slowest.since_ms + 1) ** 2


class Pool:
    """One budget: shares by address, and which of them goes when it is used up."""

    def __init__(self, clock: Clock, bytes_max: int) -> None:
        self._clock = clock
        self.bytes_max = bytes_max
        self.bytes = 0
        self._tight_at = bytes_max // 2
        self._addresses: dict[str, _Address] = {}
        """Those that hold something."""
        self._spare: _Address | None = None
        """An empty one: mostly there is one holder at a time, again and again."""
        self._relieve_at = bytes_max
        """More than the budget where everybody was too young to be dropped: so much may come before
        all are looked at again."""
        self._dropping = False
        self._relief_is_due = False
        self._goes_on = False
        """Whether connections are being dropped, some in each turn."""
        self._soon: _Soon | None = None
        """Calls in a later turn of the event loop; None until one has told of itself."""

    @property
    def is_tight(self) -> bool:
        """Whether most of it is used: then what comes is read in turns (`read_scheduler`)."""
        return self.bytes > self._tight_at

    @property
    def holders(self) -> int:
        """Connections that hold something."""
        return sum(len(each.shares) for each in self._addresses.values())

    def hold(self, share: Share, size: int, soon: _Soon | None = None) -> None:
        """A connection holds so much now; it may be dropped before this returns."""
        change = size - share.bytes
        if not change:
            return
        if soon is not None:
            self._soon = soon
        self._count(share, size)
        if change > 0 and self.bytes > self._relieve_at:
            self._relieve()

    def note(self, share: Share, size: int, soon: _Soon) -> None:
        """As `hold`, from inside of anything: whoever is to be dropped is dropped in a turn of the
        event loop (`soon`) of its own.
        """
        self._count(share, size)
        self._soon = soon
        if self.bytes > self._relieve_at and not self._relief_is_due:
            self._relief_is_due = True
            soon(self._relieve)

    def look(self) -> None:
        """Measure again what can change unseen. To be called now and then."""
        for share in [each for one in self._addresses.values() for each in one.shares]:
            if share.bytes and share.measure is not None:
                self._count(share, share.measure())
        self._relieve_at = self.bytes_max
        if self.bytes > self.bytes_max:
            self._relieve()

    def _count(self, share: Share, size: int) -> None:
        change = size - share.bytes
        if not change:
            return
        self.bytes += change
        address = self._addresses.get(share.address)
        if address is None:
            address = self._addresses[share.address] = self._spare or _Address()
            self._spare = None
        address.bytes += change
        if not size:
            share.bytes = 0
            del address.shares[share]
            if not address.shares:
                del self._addresses[share.address]
                self._spare = address
            return
        if not share.bytes:
            share.since_ms, share.peak = self._clock.monotonic_ms(), size
            address.shares[share] = None
        elif size * 2 <= share.peak:
            share.since_ms, share.peak = self._clock.monotonic_ms(), size
            address.shares.move_to_end(share)
        elif size > share.peak:
            share.peak = size
        share.bytes = size

    def _relieve(self) -> None:
        """Drop connections until there is room again; of very many, the rest in later turns."""
        self._relief_is_due = False
        target = self.bytes_max - self.bytes_max // FREED
        if self._dropping or self.bytes <= (target if self._goes_on else self.bytes_max):
            self._goes_on = False
            return
        self._dropping, self._goes_on = True, False
        try:
            self._goes_on = not self._drop_until(target)
        finally:
            self._dropping = False
            self._relieve_at = max(self.bytes_max, self.bytes + self.bytes_max // FREED)
        if self._goes_on and self._soon is not None:
            self._relief_is_due = True
            self._soon(self._relieve)

    def _drop_until(self, target: int) -> bool:
        """Whether nobody is left to be dropped for it."""
        left = DROPPED_TOGETHER_MAX
        now_ms = self._clock.monotonic_ms()
        # Within an address the slowest costs most, and what it holds falls with each that goes: so
        # only addresses are compared, each by its slowest, and looked at once more when it changes.
        ranked = [
            (-each.cost(now_ms), place, each) for place, each in enumerate(self._addresses.values())
        ]
        heapify(ranked)
        while ranked and self.bytes > target:
            cost, place, address = ranked[0]
            if address.shares:
                share = address.slowest
                if share.measure is not None:
                    self._count(share, share.measure())
            now_costs = -address.cost(now_ms)
            if not now_costs:
                heappop(ranked)
            elif now_costs > cost:
                heapreplace(ranked, (now_costs, place, address))
            elif now_ms - address.slowest.since_ms < YOUNG_MS and self.bytes <= 2 * self.bytes_max:
                heappop(ranked)  # all of its others are younger
            elif not left and self._soon is not None and self.bytes <= 2 * self.bytes_max:
                return False
            else:
                share = address.slowest
                self._count(share, 0)
                share.drop()
                left = max(0, left - 1)
        return True


class ListenerMemory:
    """The budgets as the connections of one listener use them."""

    __slots__ = ("_name", "_refused", "input", "output")

    def __init__(self, memory: GatewayMemory, name: str, refused: Refused[Excess]) -> None:
        self.input = memory.input
        self.output = memory.output
        self._name = name
        self._refused = refused

    def dropped(self, why: Excess, peer: str, size: int) -> None:
        """A connection is dropped that held so many bytes."""
        self._refused.note(self._name, why, peer, bytes=size)


class GatewayMemory:
    """Both budgets of a process."""

    def __init__(
        self,
        clock: Clock,
        input_bytes_max: int = INPUT_BYTES_MAX,
        output_bytes_max: int = OUTPUT_BYTES_MAX,
    ) -> None:
        self._clock = clock
        self.input = Pool(clock, input_bytes_max)
        self.output = Pool(clock, output_bytes_max)
        self._refused: list[Refused[Excess]] = []
        self._look_ms = 0

    def listener(self, protocol: str, name: str) -> ListenerMemory:
        """For the connections of a protocol's listener."""
        refused = Refused(_log, self._clock, protocol, (name,), Excess)
        self._refused.append(refused)
        return ListenerMemory(self, name, refused)

    def look(self) -> None:
        """Measure again what can change unseen; every adapter's clock calls it, about once a
        second.
        """
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._look_ms >= LOOK_MS:
            self._look_ms = now_ms
            self.input.look()
            self.output.look()

    @property
    def refused(self) -> Mapping[tuple[str, str], int]:
        """Connections dropped, by listener and reason."""
        return {row: count for each in self._refused for row, count in each.counts.items()}
