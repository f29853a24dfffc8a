"""What a gateway may ask of the store: the one interface that adapters are written against.

Two kinds of call (docs/design/delivery.md):

* **Hot calls are synchronous** and never wait: `PublishBatch.add`, `Client.submit`,
  `Client.settle`, `Consumer.grant`. Results come by one call of a sink per batch and event-loop
  turn, always from the event loop, never from inside the hot call itself.
* **Awaitables** are for administration and single calls: `administer`, `load`, `receive`.

Everything is called from one event loop. Whether the store runs in this process or far away, and
which node leads what, is not visible here.

Durability, one sentence for all: a sink hears "published", "settled" or an awaitable returns only
after a majority of the group's voters (one node: this node) has fdatasynced the journal bytes that
make it true; for transient topics there are no such bytes, and the sink hears it when memory holds
them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from ..common.errors import KernelError
from ..common.ids import Offset, QueueId, SessionId
from .changes import Administration as Administration
from .changes import CancelMove as CancelMove
from .changes import DeleteGroup as DeleteGroup
from .changes import DeleteRoute as DeleteRoute
from .changes import DeleteRouter as DeleteRouter
from .changes import DeleteTopic as DeleteTopic
from .changes import PurgeTopic as PurgeTopic
from .changes import PutRecord as PutRecord
from .changes import PutRoute as PutRoute
from .changes import PutRouter as PutRouter
from .changes import PutTopic as PutTopic
from .changes import StartMove as StartMove
from .filters import MessageFilter
from .model import (
    Reason,
    RouterInfo,
    TopicInfo,
    TopicStatistics,
)
from .origins import Origins
from .transactions import HalfMessages

if TYPE_CHECKING:
    from .atomic import Transaction
    from .tree import Tree

# --- Sessions -------------------------------------------------------------------------------


class Session(Protocol):
    """A client connection as the kernel knows it: owner of leases, of exclusive topics and of the
    order of what it publishes. Ends with `close`; leases return, transient property goes.
    """

    id: SessionId
    epoch: int
    origin: int
    """Whose traffic it is (`kernel.api.origins`), for counting."""

    def close(self) -> None:
        """End the session: return its leases (counted as redelivered), delete what it owns.

        Idempotent, does not wait.
        """


# --- Publishing -----------------------------------------------------------------------------


class Destinations(Protocol):
    """Where messages of one (router, key) go: found once, cached by the adapter.

    Stale after `Client.topology_version` has changed: look it up again.
    """

    count: int
    """Number of topics that get a copy; 0: unroutable."""
    is_stored: bool
    """Whether a queue gets it: then the store counts it for the bill."""
    asks_leader: bool
    """Only the leader of its name knows: `PublishBatch.unlisted` tells."""


class PublishSink(Protocol):
    """Hears of batches. One object per connection, usually the connection's driver."""

    def published(self, batch: PublishBatch) -> None:
        """Every message of the batch is stored in every destination, but for `batch.failures`.

        Called once per batch, in the order of `submit` for batches to the same queue; between
        different Raft groups the order may differ.
        """


class PublishBatch(Protocol):
    """Messages of one connection, usually those that one socket read brought. Positions count
    the `add` calls from 0.
    """

    tag: object
    """Free for the adapter (for example the first confirm number and its channel)."""
    unlisted: list[int]
    """After completion: positions whose leader was asked, and has found no queue for them."""
    unheard: Mapping[int, int]
    """After completion: those of them that nobody gets, no live route either, and that are not
    retained; their bytes without the header."""

    @property
    def count(self) -> int:
        """Messages added."""

    @property
    def size_bytes(self) -> int:
        """Their bytes, headers included."""

    def place(self, position: int) -> tuple[QueueId, Offset] | None:
        """After completion: queue and offset of a message (of its first destination); None if it
        failed or went to something transient.
        """

    @property
    def duplicates(self) -> Mapping[int, bytes] | None:
        """After completion: position to the uid of the original, for messages that the topic's
        deduplication window has dropped; `place` then tells the original's.
        """

    @property
    def failures(self) -> Mapping[int, KernelError] | None:
        """After completion: position to error, None if all went well. A message to several topics
        fails if any of them refused it.
        """

    def add(self, to: Destinations, parts: Sequence[bytes], size: int, asks: object = None) -> None:
        """One message. `parts` joined are the slot (`api.message`: header, ext, native, body)
        and `size` is their length; `parts[0]` holds the whole header. The kernel joins them once.
        `to.count` must not be 0. A body above a topic's `message_bytes_max` or 16 MiB, or ext and
        native above 256 KiB, make it fail with TOO_LARGE.

        A topic with several queues takes the queue of the header's ordering-key hash, or the next
        one in turn.

        `asks`: a promise that the header asks for the same (flags, priority, times, key, tag) as
        that of the message before, if this came with the very same object: it is not looked at.
        """

    def add_alike(
        self,
        to: Destinations,
        heads: Sequence[bytes],
        bodies: Sequence[bytes],
        sizes: Sequence[int],
    ) -> None:
        """Messages to one place: columns of equal length, not empty. A message is head and body,
        `sizes` are the lengths of both together. Their headers differ in uid and lengths only: what
        the first one asks for (time, key, tag, flags) all do. Otherwise as `add`, a position each.
        """

    def once(self, number: int, sequence: int) -> None:
        """Store the batch at most once for a (subscriber number, sequence): a repeat within 15
        minutes completes as the first did. Sequences of a number rise, but for repeats.
        """

    def uid(self) -> tuple[int, int]:
        """(high, low) for the header of the next message added: unique for ever, nearly free."""

    def uids(self, count: int) -> tuple[int, int]:
        """(high, low) of the first of so many: theirs are low, low + 1, and so on."""


# --- Consuming ------------------------------------------------------------------------------


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


# --- The client -----------------------------------------------------------------------------


class Client(Protocol):
    """The store, seen from a gateway."""

    @property
    def topology_version(self) -> int:
        """Rises whenever a topic, router or route known to this gateway changes: compare once
        per chunk, and drop cached `Destinations` and `TopicInfo` when it has moved.
        """

    @property
    def origins(self) -> Origins:
        """Where adapters register the readers of their native blocks."""

    @property
    def halves(self) -> HalfMessages:
        """Messages that wait for their producer's commit."""

    @property
    def tree(self) -> Tree:
        """The topic tree (`kernel.api.tree`)."""

    @property
    def accepting(self) -> bool:
        """False while new messages are refused (`NO_SPACE`); adapters tell their clients."""

    def open_session(self, name: str, origin: int = 0) -> Session:
        """A new session; `name` is shown to operators (connection name, address)."""

    def topic(self, tenant: str, name: str) -> TopicInfo | None:
        """The topic, or None if there is none. Raises NotLoaded."""

    def topics(self, tenant: str) -> Sequence[TopicInfo]:
        """Every topic of a tenant, in any order. For listings, not for every request."""

    def routers(self, tenant: str) -> Sequence[str]:
        """Names of a tenant's routers, sorted. For listings, not for every request."""

    def router(self, tenant: str, name: str) -> RouterInfo | None:
        """The router, or None if there is none. Raises NotLoaded."""

    async def load(self, tenant: str, *, topics: Sequence[str], routers: Sequence[str]) -> None:
        """Load the names into this gateway's cache, so that look-ups answer at once."""

    def to_topic(self, topic: TopicInfo) -> Destinations:
        """Destinations of a publish straight to one topic."""

    def to_router(
        self, tenant: str, router: str, key: str, attributes: Mapping[str, object] | None = None
    ) -> Destinations:
        """Destinations of a publish to a router. `attributes` are needed for `Match.ATTRIBUTES`
        (then the result holds for this message only). Raises NotLoaded; KernelError NOT_FOUND.
        """

    def batch(self, session: Session, sink: PublishSink) -> PublishBatch:
        """An empty batch of a session."""

    def submit(self, batch: PublishBatch) -> None:
        """Hand a batch over (hot). Exactly one `sink.published` follows, in a later turn, within
        the publish deadline. An empty batch completes too.
        """

    async def transact(self, transaction: Transaction) -> None:
        """Carry out publishes and settlements of one Raft group together, once that is on disk.

        Errors after each of which nothing was done: NOT_SAME_GROUP; LEASE_LOST (one message is not
        held any more); INVALID_ARGUMENT (one settled twice); LIMIT_EXCEEDED; why not published.
        TIMEOUT: nobody knows. One that need not be `whole` and has queues of several groups settles
        once all is stored (`cross_group`): after an error some may be done.
        """

    def attach(self, spec: ConsumerSpec, sink: ConsumerSink) -> Consumer:
        """A new push consumer without credit. Raises KernelError: LOCKED, NOT_FOUND.

        Raises what is known in this process. What only the leader of the queue knows, that another
        process has an exclusive consumer, or that the topic has just been deleted, `attached`
        raises, or if nobody awaits that, `sink.consumer_ended` tells: with LOCKED, NOT_FOUND,
        SESSION_FENCED or LIMIT_EXCEEDED, before the first delivery.
        """

    async def attached(self, consumer: Consumer) -> None:
        """Return once the leader of each of its queues has taken in a consumer that was just made:
        before its first grant. Raises KernelError as `attach`, or UNAVAILABLE if no leader has
        answered; then the consumer is over, and its sink does not hear of it.
        """

    def settle(
        self,
        consumer: Consumer,
        how: Settlement,
        offsets: Sequence[int],
        *,
        reason: Reason = Reason.REJECTED,
        sink: SettleSink | None = None,
        tag: object = None,
    ) -> None:
        """Settle leases that `consumer`'s session holds (hot). Ascending offsets are fastest.

        Without a sink the settlement is on disk within 5 ms or 500 settlements and may be
        forgotten by a crash (the message then returns as redelivered); with one, `sink.settled`
        follows once it is on disk.
        """

    def acknowledge(self, acks: Mapping[Consumer, list[int]]) -> None:
        """ACK what many consumers hold, as `settle` does without a sink (hot): a whole read in one
        call. The lists become the kernel's. What a consumer does not hold is left alone; never
        raises.
        """

    async def receive(self, spec: ReceiveSpec) -> Received:
        """Pull messages (see ReceiveSpec). Raises KernelError: NOT_FOUND, LIMIT_EXCEEDED."""

    async def settle_leases(
        self, topic: TopicInfo, group: str, changes: Sequence[LeaseChange], origin: int = 0
    ) -> Sequence[KernelError | None]:
        """Change leases by token; per change None, once it is on disk, or LEASE_LOST (expired and
        given to somebody else, settled, or not a token of this topic), LEASE_OVER (expired).
        """

    async def peek(
        self, topic: TopicInfo, number: int, offset: Offset, messages: int
    ) -> Sequence[tuple[Offset, bytes]]:
        """Up to `messages` (offset, slot) pairs of queue `number` from `offset` on, whatever
        their state, without leasing them; those gone from disk are left out.
        """

    async def span(self, topic: TopicInfo, number: int) -> tuple[int, int]:
        """(first offset that is kept, offset behind the last) of queue `number`. Raises KernelError
        NOT_FOUND: the topic was deleted.
        """

    async def offset_since(self, topic: TopicInfo, number: int, time_ms: int) -> Offset:
        """The first offset in the `span` of queue `number` whose message was stored at or after a
        time (ms since the epoch), whatever its state; the one behind the last if none was. Stored
        means the time of its log entry: the clock of the group's leader, which never goes back, so
        that everything from there on is as late; publishers' clocks do not count. A half message,
        and one that came back as a dead letter, was stored when it came into this queue. Raises
        KernelError NOT_FOUND: the topic was deleted.
        """

    async def position(self, topic: TopicInfo, number: int, group: str) -> Offset:
        """The first offset of queue `number` that a group is not done with. Raises KernelError
        NOT_FOUND.
        """

    async def seek(self, topic: TopicInfo, number: int, group: str, offset: Offset) -> Offset:
        """Have a group of a stream go on from an offset of queue `number`, or the nearest that is
        there; which that is, once it is on disk. Raises KernelError NOT_FOUND; NOT_ALLOWED (it is
        no stream); IN_USE (it has consumers, or holds messages).
        """

    async def recall(self, topic: TopicInfo, number: int, offset: Offset) -> bool:
        """Have nobody get the message at an offset of queue `number`, if it is not due yet: True
        once that is on disk. False: too late, or there is none. A repeat answers the same. Raises
        KernelError LIMIT_EXCEEDED.
        """

    def records(self, prefix: str) -> Mapping[str, tuple[int, bytes]]:
        """(version, value) of the metadata records whose key begins so."""

    def watch_records(self, action: Callable[[str, bytes | None], None]) -> None:
        """Have every change of a metadata record told to `action`."""

    async def administer(self, change: Administration) -> object:
        """Make a change; returns what the command's docstring says, once it is on disk."""

    async def statistics(self, topic: TopicInfo, group: str) -> TopicStatistics:
        """Figures of a topic and group. Exact in process; elsewhere at most a second old."""
