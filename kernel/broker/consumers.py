"""Consumers as the dispatcher knows them, and what it hands them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..client import ConsumerSink, ConsumerSpec
from ..ids import QueueId

if TYPE_CHECKING:
    from .dispatcher import Dispatcher


class Handed:
    """`Deliveries`: columns of what one consumer gets at once."""

    __slots__ = ("attempts", "lease", "offsets", "queue", "slots")

    def __init__(
        self, queue: QueueId, offsets: list[int], slots: list[bytes], attempts: list[int] | None
    ) -> None:
        self.queue = queue
        self.offsets = offsets
        self.slots = slots
        self.attempts = attempts
        self.lease = 0
        """Log index of the timed lease, if the consumer asked for one."""

    def extend(
        self, offsets: Sequence[int], slots: list[bytes], attempts: list[int] | None
    ) -> None:
        """Add columns."""
        if attempts is not None or self.attempts is not None:
            earlier = self.attempts or [1] * len(self.offsets)
            self.attempts = earlier + (attempts or [1] * len(offsets))
        self.offsets.extend(offsets)
        self.slots.extend(slots)

    def keep(self, wanted: set[int]) -> None:
        """Drop what is not in `wanted`."""
        places = [at for at, offset in enumerate(self.offsets) if offset in wanted]
        if len(places) == len(self.offsets):
            return
        self.offsets = [self.offsets[at] for at in places]
        self.slots = [self.slots[at] for at in places]
        if self.attempts is not None:
            self.attempts = [self.attempts[at] for at in places]


class DispatchedConsumer:
    """`Consumer`: one consumer, its credit and what it holds."""

    __slots__ = (
        "credit",
        "dispatcher",
        "ended",
        "expecting",
        "held",
        "pending",
        "sink",
        "spec",
        "tag",
    )

    def __init__(self, dispatcher: Dispatcher, spec: ConsumerSpec, sink: ConsumerSink) -> None:
        self.dispatcher = dispatcher
        self.spec = spec
        self.sink = sink
        self.tag = spec.tag
        self.credit = 0
        self.held: set[int] = set()
        """Offsets leased to its session (not those under timed leases)."""
        self.ended = False
        self.expecting = False
        """Whether timed leases for it are on their way into the log."""
        self.pending: Handed | None = None

    def grant(self, messages: int) -> None:
        """Add credit (see `client.Consumer`)."""
        self.credit += messages
        if self.credit > 0 and not self.ended:
            self.dispatcher.pump()

    def cancel(self) -> None:
        """Stop deliveries; what it holds stays held."""
        self.dispatcher.detach(self)
