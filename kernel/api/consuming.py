"""Consumers, pulls, and what happens to the messages that they lease."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from ..common.errors import KernelError
from ..common.ids import QueueId
from .filters import MessageFilter
from .model import Reason, TopicInfo
from .session import Session
from .tracing import ConnectedUser


class Deliveries(Protocol):
    """Columns of equal length: messages handed to one consumer in one turn of the event loop."""

    @property
    def queue(self) -> QueueId:
        """Where the messages lie."""

    @property
    def offsets(self) -> Sequence[int]:
        """Their offsets."""

    @property
    def slots(self) -> Sequence[bytes]:
        """The stored bytes (`kernel.api.message`)."""

    @property
    def attempts(self) -> Sequence[int] | None:
        """1-based attempt of each; None if every one is a first attempt."""


class ConsumerSink(Protocol):
    """Hears what one or many push consumers get."""

    def deliver(self, consumer: Consumer, deliveries: Deliveries) -> None:
        """Messages leased to `consumer`'s session until settled, released or session end.

        The credit of the consumer has already been lowered by their number.
        """

    def consumer_ended(self, consumer: Consumer, error: KernelError) -> None:
        """The kernel ended the consumer (topic deleted, fenced): no more deliveries come."""


class Consumer(Protocol):
    """A push consumer: (topic, group, session). Made by `Client.attach`."""

    tag: object
    """Free for the adapter."""

    def grant(self, messages: int) -> None:
        """Add credit for so many more deliveries (hot; may be negative to take credit back)."""

    def cancel(self) -> None:
        """Stop deliveries. Leases given stay valid until settled or the session's end."""


class Settlement(Enum):
    """What happens to leased messages."""

    ACK = 1
    """Done with: never delivered to the group again."""
    RELEASE = 2
    """Give back to the old place in order; counts as an attempt."""
    RETURN = 3
    """Give back as if never delivered (unplaced prefetch): no attempt is counted."""
    DEAD_LETTER = 4
    """To the group's dead-letter target with `reason`, or gone if it has none."""
    SKIP = 5
    """Filtered out: done with for the group, but never delivered. Said by the kernel alone."""


@dataclass(frozen=True, slots=True)
class ConsumerSpec:
    """What `Client.attach` makes a consumer of."""

    topic: TopicInfo
    group: str
    session: Session | None
    """Holder of the leases; None only with `lease_ms`."""
    priority: int = 0
    """Higher ones are served first while they have credit; equals in turn."""
    exclusive: bool = False
    """Refuse with LOCKED if the group has a consumer, and keep others out."""
    auto_ack: bool = False
    """A delivery is acked by handing it to the sink (at most once)."""
    filter: MessageFilter | None = None
    """Take only what matches; the rest counts as consumed for the whole group."""
    lease_ms: int | None = None
    """Deliveries are leased for so long, by the log, instead of until the session's end. 0: the
    message is ready again at once, its attempt counted; its token stays that of the last holder."""
    pull: bool = False
    """Stands for single receives, not for a waiting consumer: not counted as one."""
    origin: int = 0
    """Whose traffic it is, if there is no session to tell."""
    tag: object = None
    fair: bool = False
    """Of a pull with `lease_ms`: nobody's backlog keeps others waiting (`broker.fairness`)."""
    note: int = 0
    """What the log says of leases with a time beside them (u64): for whoever leads next."""


class LeaseVerb(Enum):
    """What happens to a message leased by token."""

    ACK = 1
    """Done with. Also while the lease has run out, as long as nobody got the message since."""
    RELEASE = 2
    """Ready again after `delay_ms`; the delivery counts as an attempt."""
    RETURN = 3
    """Ready again after `delay_ms`; the delivery does not count as an attempt."""
    EXTEND = 4
    """Leased until `delay_ms` from now; the token stays."""
    DEAD_LETTER = 5
    """To the group's dead-letter target, or gone if it has none."""
    ACK_IN_TIME = 6
    """As ACK, but only as long as the lease has not run out."""


@dataclass(frozen=True, slots=True)
class LeaseChange:
    """One lease and what is to happen to it."""

    token: bytes
    verb: LeaseVerb
    delay_ms: int = 0
    reason: Reason = Reason.REJECTED
    slot_bytes: int = 0
    """With RETURN, of a message that has reached nobody: the size of its slot, so that what was
    counted as delivered to this lease is counted as returned. 0: somebody has got it."""
    by: ConnectedUser | None = None
    """Who wants it; None: nobody in particular."""


class SettleSink(Protocol):
    """Hears that a settlement which gets an answer is on disk."""

    def settled(self, tag: object, failures: Mapping[int, KernelError] | None) -> None:
        """All offsets of the call with this tag are settled, but for `failures`."""


@dataclass(frozen=True, slots=True)
class ReceiveSpec:
    """One pull: lease up to `messages` messages, waiting up to `wait_ms` for the first.

    `session` given: leases last as long as it (settle by `Client.settle` with the consumer
    `Received.consumer`); else until `lease_ms` from now, and each has a token.
    """

    topic: TopicInfo
    group: str
    messages: int = 1
    wait_ms: int = 0
    session: Session | None = None
    lease_ms: int | None = None
    filter: MessageFilter | None = None
    """Take only what matches; the rest counts as consumed for the whole group."""
    origin: int = 0
    """Whose traffic it is, if there is no session to tell."""
    fair: bool = False
    """As `ConsumerSpec.fair`; the messages' keys say whose they are."""
    note: int = 0
    """As `ConsumerSpec.note`."""
    consumer_key: Hashable = None
    """The connection that it came by, if no session tells (`remote.served_topics`)."""
    by: ConnectedUser | None = None
    """Who pulls, if no session tells."""


@dataclass(frozen=True, slots=True)
class Received:
    """What a pull brought: columns of equal length, empty if nothing came in time."""

    deliveries: Deliveries | None
    consumer: Consumer | None
    """Holder of the leases, for `Client.settle`, if the pull had a session."""
    tokens: Sequence[bytes]
    """Lease tokens, if it had none."""
    ready: int
    """Messages of the group still ready after this pull (a hint)."""
