"""The kernel client: the one interface that adapters are written against.

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

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ..common.errors import KernelError
from ..common.fairness import WriteRounds
from ..common.ids import Offset
from .atomic import Transaction
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
from .changes import ResizeTopic as ResizeTopic
from .changes import StartMove as StartMove
from .consuming import Consumer as Consumer
from .consuming import ConsumerSink as ConsumerSink
from .consuming import ConsumerSpec as ConsumerSpec
from .consuming import Deliveries as Deliveries
from .consuming import LeaseChange as LeaseChange
from .consuming import LeaseVerb as LeaseVerb
from .consuming import Received as Received
from .consuming import ReceiveSpec as ReceiveSpec
from .consuming import Settlement as Settlement
from .consuming import SettleSink as SettleSink
from .model import MessageStanding, Reason, RouterInfo, TopicInfo, TopicStatistics
from .origins import Origins
from .publishing import Destinations as Destinations
from .publishing import PublishBatch as PublishBatch
from .publishing import PublishSink as PublishSink
from .session import Session as Session
from .tracing import ConnectedUser
from .transactions import HalfMessages
from .tree import Tree

RecordAction = Callable[[str, tuple[int, bytes] | None], None]
"""Hears of a metadata record's key, and its (version, value) from now on; None: it was removed."""


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

    @property
    def rounds(self) -> WriteRounds:
        """What was submitted and is not answered, commit by commit: for who shares it out."""

    def note_active(self, tenant: str) -> None:
        """Which tenant is the only active one of those who share this process, so that its
        backlogs give way to nobody; empty: none is, "*": several are.
        """

    @property
    def is_tracing(self) -> bool:
        """Whether any topic is traced: who speaks by no session of its own is named only then."""

    def open_session(self, name: str, origin: int = 0, by: ConnectedUser | None = None) -> Session:
        """A new session; `name` is shown to operators (connection name, address); `by`: who
        publishes and takes by it.
        """

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

    def note_read(
        self, topic: TopicInfo, number: int, offsets: Sequence[int], group: str, by: ConnectedUser
    ) -> None:
        """Somebody was shown messages of queue `number` that came by `peek`; `group`: in whose
        name, "" of none. Noted if the topic is traced, which nothing waits for.
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

    async def standing(
        self, topic: TopicInfo, number: int, group: str, offset: Offset
    ) -> MessageStanding | None:
        """What has become of a message of queue `number` for a group; None: the store that leads it
        is older than this question. Raises KernelError NOT_FOUND.
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

    def watch_records(self, action: RecordAction) -> None:
        """Have every change of a metadata record told to `action`, in the order of the log."""

    async def administer(self, change: Administration) -> object:
        """Make a change; returns what the command's docstring says, once it is on disk."""

    async def statistics(self, topic: TopicInfo, group: str) -> TopicStatistics:
        """Figures of a topic and group. Exact in process; elsewhere at most a second old."""
