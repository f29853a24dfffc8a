"""A push consumer of a gateway without a store: its parts, one for each queue, and their credit.

A part has a stream at the leader of its queue. Credit is the consumer's, in common to its parts
(`CreditPool`). Each store that leads any of these queues has a share of it, in common to the
streams there: however many queues there are, what is left is divided among a few stores. Each has
one message of it at least, so that all of them may hand over more than was asked for; that goes
back uncounted (`streams`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from ...api.client import ConsumerSink, ConsumerSpec, Settlement, SettleSink
from ...api.filters import setting_of
from ...api.model import QueueRef, Reason
from ...common.errors import Code, KernelError
from ...common.ids import QueueId, RaftGroup, SessionId, queue_there
from ...rpc.channel import Channel
from ..leader_calls.transaction_wire import StreamConsumer
from . import stream_wire

GIVING_BACK = frozenset({Settlement.RELEASE, Settlement.RETURN})
"""What is settled so comes again."""


class PartEntry:
    """A settlement that is not known to be applied."""

    __slots__ = ("fence", "how", "is_repeat", "lost", "number", "offsets", "reason", "sink", "tag")

    def __init__(
        self,
        how: Settlement,
        offsets: list[int],
        reason: Reason,
        sink: SettleSink | None,
        tag: object,
    ) -> None:
        self.how = how
        self.offsets = offsets
        self.reason = reason
        self.sink = sink
        self.tag = tag
        self.number = 0
        self.is_repeat = False
        self.lost: Sequence[int] = ()
        """What it names too and was not leased any more before it could be said."""
        self.fence: CreditShare | None = None
        """Of a RETURN of surplus: what comes by this share before the answer is surplus too."""

    @property
    def is_answered(self) -> bool:
        """Whether somebody waits for its end."""
        return self.sink is not None or self.fence is not None


class PartHost(Protocol):
    """What a part asks of the gateway (`streams.Streams`)."""

    def credit_changed(self, pool: CreditPool) -> None:
        """What a pool has left is another number."""

    def cancelled(self, part: StreamPart) -> None:
        """A part takes no more."""


class Question(Protocol):
    """A pull that a part stands for, until it is answered (`pulls`)."""

    number: int
    messages: int

    def wait_ms(self) -> int:
        """How long it may still wait for the first message."""

    def lost(self) -> bool:
        """The stream it was asked by is gone. Whether it is to be asked again by the next one."""

    def took(self, ready: int, error: KernelError | None) -> None:
        """It is over: what came has been delivered."""


class CreditShare:
    """What one store has of a pool. A store that is lost and comes back has another one."""

    __slots__ = ("fences", "granted", "number", "parts", "pool")

    def __init__(self, pool: CreditPool, number: int) -> None:
        self.pool = pool
        self.number = number
        self.granted = 0
        """Credit that the store has, and what of it is on its way here."""
        self.fences = 0
        """RETURNs of surplus without an answer: while there are any, the store has no credit."""
        self.parts = 0
        """Streams that live on it."""


class CreditPool:
    """Credit of one consumer."""

    __slots__ = ("is_told", "left", "more", "shares")

    def __init__(self, *, is_told: bool = True) -> None:
        """`is_told`: stores are told what is left of it; for pulls they are not."""
        self.is_told = is_told
        self.left = 0
        self.more: Sequence[StreamPart] = ()
        """Parts of the consumer that it has got since, of queues that its topic had not before."""
        self.shares: dict[Channel, CreditShare] = {}

    def changes(self) -> list[tuple[Channel, CreditShare, int]]:
        """How much more credit each store should have; less than 0: less. One of several is told
        once it has less than half of its part or more than twice of it, so that what one hands over
        does not change what the others have at once.
        """
        found: list[tuple[Channel, CreditShare, int]] = []
        shares, left = self.shares, self.left
        if not self.is_told:
            return found
        if len(shares) > 1:
            left = max(left // len(shares), 1) if left > 0 else 0
        for channel, share in shares.items():
            granted = share.granted
            if share.fences:
                more = min(-granted, 0)
            elif len(shares) == 1 or 2 * granted < left or granted > 2 * left:
                more = left - granted
            else:
                continue
            if more:
                found.append((channel, share, more))
        return found


class StreamPart:
    """`client.Consumer` on one queue."""

    __slots__ = (
        "backlog",
        "channel",
        "claimant",
        "ended",
        "held",
        "host",
        "is_attached",
        "is_gone",
        "number",
        "origin",
        "pool",
        "question",
        "ref",
        "session",
        "sink",
        "spec",
        "tag",
        "unconfirmed",
        "waiters",
        "was_used",
    )

    def __init__(
        self,
        host: PartHost,
        number: int,
        ref: QueueRef,
        spec: ConsumerSpec,
        sink: ConsumerSink,
        pool: CreditPool,
        claimant: tuple[int, int],
    ) -> None:
        self.host = host
        self.number = number
        self.ref = ref
        self.spec = spec
        self.sink = sink
        self.pool = pool
        self.claimant = claimant
        """(subscriber, its epoch): a later epoch of it ends this stream; (0, 0): nothing does."""
        self.tag = spec.tag
        self.session: SessionId | None = spec.session.id if spec.session is not None else None
        self.origin = spec.session.origin if spec.session is not None else spec.origin
        self.held: set[int] = set()
        """Delivered and not settled."""
        self.backlog: list[PartEntry] = []
        """Settlements that are to be sent."""
        self.unconfirmed: deque[PartEntry] = deque()
        """Those that have been, in this order."""
        self.channel: Channel | None = None
        """To the leader by which it is attached, or is about to be."""
        self.is_attached = False
        self.is_gone = False
        """Forgotten: what it held is lost."""
        self.ended = False
        self.waiters: list[asyncio.Future[None]] | None = []
        """Those who wait until it is attached for the first time; None: it has been."""
        self.question: Question | None = None
        self.was_used = True
        """Whether anything has come since somebody looked last."""

    @property
    def queue(self) -> QueueId:
        """What it takes from."""
        return QueueId(self.ref.id)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is known of it here that its leader would have to hear of again."""
        return not (self.held or self.backlog or self.unconfirmed)

    @property
    def claims(self) -> list[int]:
        """What is leased to it, as far as is known here, when it is about to be attached: what it
        is going to settle too.
        """
        return sorted(self.held.union(*(entry.offsets for entry in self.backlog)))

    def grant(self, messages: int) -> None:
        """Add credit (see `client.Consumer`)."""
        self.pool.left += messages
        self.host.credit_changed(self.pool)

    def cancel(self) -> None:
        """Stop deliveries; what it holds stays held."""
        self.end()
        for each in self.pool.more:
            each.end()

    def end(self) -> None:
        """Stop deliveries of this queue."""
        if not self.ended:
            self.ended = True
            self.host.cancelled(self)


def _is_stream_consumer(part: StreamPart) -> StreamConsumer:
    """Type check only: a transaction may settle what a part holds."""
    return part


class SpreadParts:
    """`client.Consumer` on a topic of several queues. The sink hears of each part by itself."""

    __slots__ = ("parts", "tag")

    def __init__(self, parts: Sequence[StreamPart]) -> None:
        self.parts = parts
        self.tag = parts[0].tag

    def grant(self, messages: int) -> None:
        """Add credit, which the queues have in common."""
        self.parts[0].grant(messages)

    def cancel(self) -> None:
        """Stop deliveries; what it holds stays held."""
        for part in self.parts:
            part.cancel()


class PartGroup:
    """One Raft group."""

    __slots__ = ("asked", "channel", "number", "parts", "term", "there", "unconfirmed")

    def __init__(self, there: RaftGroup) -> None:
        self.there = there
        """Its number where it is led."""
        self.term = 0
        self.channel: Channel | None = None
        """To who serves it."""
        self.number = 0
        """Of the last settlement, or block of them."""
        self.parts: dict[StreamPart, None] = {}
        self.unconfirmed: dict[StreamPart, None] = {}
        """Parts with settlements that are not known to be applied."""
        self.asked: dict[int, tuple[StreamPart, PartEntry]] = {}
        """Settlements that are answered, by number."""


def head_of(part: StreamPart, share: CreditShare, there: RaftGroup) -> stream_wire.Attach:
    """A part as its leader is told of it; `there`: the number that its group has there."""
    spec, ref = part.spec, part.ref
    return stream_wire.Attach(
        part.number,
        share.number,
        there,
        ref.id if there == ref.group else queue_there(ref.id),
        spec.group,
        *part.claimant,
        part.origin,
        spec.priority,
        spec.exclusive,
        spec.auto_ack,
        spec.pull,
        part.ended,
        setting_of(spec.filter),
        part.claims,
    )


def settle_of(part: StreamPart, entry: PartEntry) -> stream_wire.Settle:
    """A settlement as its leader is told of it."""
    return stream_wire.Settle(
        entry.number,
        part.number,
        entry.how,
        entry.reason,
        entry.offsets,
        entry.is_answered,
        entry.is_repeat,
    )


def no_lease(offset: int) -> KernelError:
    """What a settlement of something else has failed with."""
    return KernelError(Code.LEASE_LOST, f"no lease on offset {offset}")
