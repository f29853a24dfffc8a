"""Consumers as the dispatcher knows them, and what it hands them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ...api.client import ConsumerSink, ConsumerSpec, Settlement
from ...api.model import QueueRef, Reason
from ...api.tracing import ConnectedUser
from ...common.errors import Code, KernelError
from ...common.ids import QueueId
from ..group_state.progress import GroupProgress
from ..group_state.state import QueueState
from .group_counts import GroupCounts
from .ready import Ready


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


class ServingDispatcher(Protocol):
    """The dispatcher, as its consumers and those who act for them see it."""

    queue: QueueState
    group: str
    ready: Ready
    held_count: int
    """Messages that its consumers hold."""
    leasing_count: int
    """Messages whose timed lease is on its way into the log."""
    counts: GroupCounts

    @property
    def ready_count(self) -> int:
        """Messages that wait for a consumer."""

    @property
    def leased_count(self) -> int:
        """Messages that somebody holds."""

    def pump(self) -> None:
        """Hand out what can be handed out."""

    def put_off(self) -> None:
        """Go on handing out when it is its turn."""

    def detach(self, consumer: DispatchedConsumer) -> None:
        """Take a consumer out of dispatch; it keeps what it holds."""

    def is_last_attempt(self, offset: int) -> bool:
        """Whether a message is dead-lettered if its present delivery comes to nothing."""

    def blocks(self, offset: int) -> bool:
        """Whether somebody else holds the ordering key of a message."""

    def hold(self, consumer: DispatchedConsumer, offsets: Sequence[int]) -> None:
        """A consumer holds messages that have been taken out of `ready`."""

    def settle(
        self,
        consumer: DispatchedConsumer,
        how: Settlement,
        offsets: Sequence[int],
        reason: Reason,
        *,
        urgent: bool,
        logged: bool = False,
    ) -> list[int]:
        """Settle what a consumer holds; returns the offsets it does not hold."""

    def acknowledge(self, consumer: DispatchedConsumer, offsets: list[int]) -> None:
        """Ack what a consumer holds, nothing else, without an answer (hot)."""

    def return_handed(self, consumer: DispatchedConsumer, handed: Handed) -> None:
        """What a consumer was handed and nobody looked at is ready again, no attempt counted."""

    def tell_when_moved(self, consumer: DispatchedConsumer, tell: Callable[[], None]) -> bool:
        """Have `tell` called after the next turn if something may be on its way to the consumer."""


class Credit:
    """Deliveries that may still be handed out. Shared by the queues of one consumer."""

    __slots__ = ("left", "more")

    def __init__(self) -> None:
        self.left = 0
        self.more: Sequence[DispatchedConsumer] = ()
        """Parts of the consumer that it has got since, of queues that its topic had not before."""


class DispatchedConsumer:
    """`Consumer` on one queue: its credit and what it holds."""

    __slots__ = (
        "dispatcher",
        "ended",
        "expecting",
        "held",
        "origin",
        "pending",
        "pool",
        "sink",
        "spec",
        "tag",
    )

    def __init__(
        self, dispatcher: ServingDispatcher, spec: ConsumerSpec, sink: ConsumerSink, pool: Credit
    ) -> None:
        self.dispatcher = dispatcher
        self.spec = spec
        self.sink = sink
        self.tag = spec.tag
        self.origin = spec.session.origin if spec.session is not None else spec.origin
        self.pool = pool
        self.held: set[int] = set()
        """Offsets leased to its session (not those under timed leases)."""
        self.ended = False
        self.expecting = False
        """Whether timed leases for it are on their way into the log."""
        self.pending: Handed | None = None

    @property
    def credit(self) -> int:
        """Deliveries that it may still be handed."""
        return self.pool.left

    @property
    def queue(self) -> QueueId:
        """What it takes from."""
        return self.dispatcher.queue.id

    @property
    def by(self) -> ConnectedUser | None:
        """Who has it; None: nobody of this process, or it stands for a pull, of which is noted what
        it has brought.
        """
        session = self.spec.session
        return session.by if session is not None and not self.spec.pull else None

    @property
    def who(self) -> tuple[int, int]:
        """(origin, note) of its timed leases."""
        return self.origin, self.spec.note

    @property
    def ref(self) -> QueueRef:
        """Its queue, and where that lives."""
        queue = self.dispatcher.queue
        return next(each for each in queue.topic.refs if each.id == queue.id)

    def grant(self, messages: int) -> None:
        """Add credit (see `client.Consumer`)."""
        self.pool.left += messages
        if self.pool.left > 0 and not self.ended:
            self.dispatcher.pump()
        if self.pool.more:
            _pump(self.pool)

    def cancel(self) -> None:
        """Stop deliveries; what it holds stays held."""
        self.dispatcher.detach(self)
        for each in self.pool.more:
            each.dispatcher.detach(each)


def _pump(pool: Credit) -> None:
    """Have parts that came later take from the pool."""
    for part in pool.more:
        if pool.left > 0 and not part.ended:
            part.dispatcher.pump()


def eligible_consumers(
    consumers: Sequence[DispatchedConsumer], *, single_active: bool
) -> list[DispatchedConsumer]:
    """Consumers that may get the next messages: those of the highest priority with credit. They
    stand by falling priority; with `single_active` the first one that waits is the active one.
    """
    able = [each for each in consumers if each.credit > 0]
    if not able:
        return able
    if single_active:
        active = next((each for each in consumers if not each.spec.pull), None)
        return [each for each in able if each is active or each.spec.pull]
    if able[0].spec.priority != able[-1].spec.priority:
        top = able[0].spec.priority
        able = [each for each in able if each.spec.priority == top]
    return able


def check_exclusive(
    name: str, count: int, consumers: Sequence[DispatchedConsumer], spec: ConsumerSpec
) -> None:
    """Raise LOCKED if the `count` push consumers of topic `name` and a new one exclude another."""
    if not count:
        return
    if any(each.spec.exclusive for each in consumers):
        raise KernelError(Code.LOCKED, f"topic {name} has an exclusive consumer")
    if spec.exclusive:
        raise KernelError(Code.LOCKED, f"topic {name} has consumers: none can be exclusive")


def offsets_held(consumers: Sequence[DispatchedConsumer], progress: GroupProgress) -> list[int]:
    """Offsets that these consumers, or timed leases, hold."""
    held = {each for consumer in consumers for each in consumer.held}
    held.update(offset for offset, lease, _ in progress.kept() if lease)
    return sorted(held)


class SpreadConsumer:
    """`Consumer` on a topic of several queues: one part a queue, with credit in common.

    The sink hears of each part by itself, as the consumer to settle with.
    """

    __slots__ = ("_round_robin", "parts", "tag")

    def __init__(self, parts: Sequence[DispatchedConsumer]) -> None:
        self.parts = parts
        self.tag = parts[0].tag
        self._round_robin = 0

    def grant(self, messages: int) -> None:
        """Add credit; the queues take from it in turn, a different one first each time."""
        pool = self.parts[0].pool
        pool.left += messages
        self._round_robin += 1
        for at in range(len(self.parts)):
            part = self.parts[(self._round_robin + at) % len(self.parts)]
            if pool.left > 0 and not part.ended:
                part.dispatcher.pump()
        if pool.more:
            _pump(pool)

    def cancel(self) -> None:
        """Stop deliveries; what it holds stays held."""
        for part in self.parts:
            part.cancel()
