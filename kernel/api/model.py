"""The model that every protocol is translated into: topics, groups, routers, routes, sessions.

Definitions are frozen values; they travel in commands, stand in snapshots and are handed to
adapters as they are. Times are milliseconds, sizes bytes. `None` means "no limit" or "not set".
"""

from __future__ import annotations

from enum import Enum, StrEnum

import msgspec

from ..common.errors import Code, KernelError
from ..common.ids import NUMBER_BITS, QueueId, RaftGroup, SessionId, TopicId

DEFAULT_TENANT = "default"
DEFAULT_GROUP = "default"
"""The built-in consumer group of a work topic (docs/design/model.md#consumer-groups)."""


TOPICS_ROUTER = "weir.topics"
"""The router that every tenant has: a key is the name of a topic. What is published to it with key
T is appended to topic T; a route from it with key T copies what anybody writes to topic T."""


class TopicKind(Enum):
    """`WORK`: a message goes when every group has acked it. `STREAM`: kept by time or size."""

    WORK = "work"
    STREAM = "stream"


class Overflow(Enum):
    """What a full topic does with one more message."""

    DROP_OLDEST = "drop_oldest"
    """Drop (dead-letter with reason `overflow`, if there is a policy) from the front."""
    REJECT = "reject"
    """Refuse the new message: `Code.REJECTED`."""
    REJECT_DEAD_LETTER = "reject_dead_letter"
    """Refuse the new message and dead-letter it."""


class Reason(Enum):
    """Why a message was dead-lettered."""

    ATTEMPTS = "attempts"
    EXPIRED = "expired"
    REJECTED = "rejected"
    OVERFLOW = "overflow"
    TOO_LARGE = "too_large"
    MOVED = "moved"
    """Not a dead letter: moved on by a task (`kernel.api.moves`). Stands in the outbox only."""


class DeadLetter(msgspec.Struct, frozen=True):
    """Where a group's dead letters go.

    `router` None: straight to the topic named `key`. Otherwise through the router of that name
    with `key`, or with the message's own key if `key` is None.
    """

    router: str | None
    key: str | None


class Start(Enum):
    """Where a group that joins an existing topic begins."""

    EARLIEST = "earliest"
    """At the first message that is still there."""
    LATEST = "latest"
    """At the next message that comes."""


class HalfOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a topic's half messages (published, but without an offset until they are
    committed) when nobody says. The defaults are what producers of such messages are used to.
    """

    check_after_ms: int = 6_000
    """The first question to a producer, after so long."""
    check_interval_ms: int = 30_000
    """Each further one, after so long more."""
    checks_max: int = 15
    """An interval after the last question the message is rolled back."""
    messages_max: int = 100_000
    bytes_max: int = 256 * 1024 * 1024


class TopicOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a topic. The creator fixes `kind`, `durable` and `queues`."""

    kind: TopicKind = TopicKind.WORK
    durable: bool = True
    """False: lives in bounded memory of this process, gone with its `owner` or with the process."""
    queues: int = 1
    owner: SessionId | None = None
    """The session that alone may use the topic, and with which it is deleted: never of a durable
    one, whose leader knows no sessions.
    """
    hidden: bool = False
    """Invisible to protocols other than its creator's."""
    delete_when_unused: bool = False
    """Delete when its last consumer goes (never before the first came)."""
    unused_expiry_ms: int | None = None
    """Delete after so long without consumer, receive or redeclaration."""
    message_ttl_ms: int | None = None
    message_bytes_max: int = 16 * 1024 * 1024
    """Largest body, 1 to 16 MiB; for every writer, whatever its protocol."""
    messages_max: int | None = None
    """Limit on ready messages; `overflow` says what happens at it."""
    bytes_max: int | None = None
    overflow: Overflow = Overflow.DROP_OLDEST
    priority_max: int = 0
    """Levels 0..priority_max (at most 255); a message above it counts as priority_max."""
    retention_ms: int | None = None
    """A message goes so long after it was sent (on a stream: after it was due), whoever has acked,
    holds or waits for it; it does not become a dead letter. Counted from the first send also for a
    dead letter, but in groups with `ordered`. Done within about a second (dead letters: a minute).
    Dead letters go in the order in which they came: one in front that was sent later keeps those
    behind it, at most until they have been in this queue for so long."""
    retention_bytes: int | None = None
    """Streams only: the newest messages with so many bytes are kept."""
    tree: bool = False
    """Part of the topic tree: what is published to its name there, or below it, is stored here
    too, and what is written here appears in the tree at its name."""
    deduplication_ms: int | None = None
    """Messages with an `Ext.DEDUPLICATION_ID` seen within so long are dropped and answered with
    the original."""
    half: HalfOptions = HalfOptions()
    declarations: dict[str, bytes] = {}
    """Per adapter name, its own last declaration, opaque: redeclare equivalence compares these."""


class AttributesMatch(Enum):
    """How the attributes asked for are combined."""

    ALL_OF = "all_of"
    ANY_OF = "any_of"


class FilterKind(Enum):
    """What a group's filter looks at."""

    TAGS = "tags"
    """`expression` is `a || b`; `*`: every message."""
    ATTRIBUTES = "attributes"
    """`attributes`, as `combine` says."""
    SQL = "sql"
    """`expression` is SQL92, in the dialect of `kernel.api.sql`."""


class GroupFilter(msgspec.Struct, frozen=True, kw_only=True):
    """What a group takes; the rest counts as consumed by it when its turn comes."""

    kind: FilterKind
    expression: str = ""
    attributes: tuple[tuple[str, bytes], ...] = ()
    """(name, msgpack of the value) pairs; msgpack nil: present with any value."""
    combine: AttributesMatch = AttributesMatch.ALL_OF


class GroupOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a consumer group on a topic."""

    start: Start = Start.EARLIEST
    ordered: bool = False
    """True: an ordering key is blocked while one of its messages is leased."""
    attempts_max: int | None = None
    """The attempt after which a failed delivery is dead-lettered; None: never."""
    dead_letter: DeadLetter | None = None
    lease_ms: int = 30_000
    in_flight_max: int = 120_000
    single_active_consumer: bool = False
    """One consumer at a time gets deliveries; the next takes over when it goes."""
    filter: GroupFilter | None = None
    unused_ms: int | None = 30 * 24 * 3_600_000
    """After so long without a consumer or a receive, a group that was added to a work topic lets go
    of what it holds; None: never. The built-in group holds its messages in any case."""


class Match(Enum):
    """How the routes of a router are chosen by the key of a message."""

    EXACT = "exact"
    ALL = "all"
    PATTERN = "pattern"
    """Levels separated by `/`; `+` stands for one level, `#` for any number of levels (also
    none), both anywhere. Adapters translate their own spelling to this one."""
    ATTRIBUTES = "attributes"
    """By message attributes; the route's `arguments` name the values asked for."""


class RouterOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a router."""

    match: Match = Match.EXACT
    durable: bool = True
    internal: bool = False
    """True: clients may not publish to it, only routes may lead to it."""
    delete_when_unused: bool = False
    """Delete when the last route *from* it goes."""
    tree: bool = False
    """Another door to the tenant's topic tree: its keys are names there, and what is published to
    the tree takes its routes. For PATTERN only."""
    alternate: str | None = None
    """Router that gets what matched no route here."""
    declarations: dict[str, bytes] = {}


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """From a router, through a filter, to a topic or another router of the same tenant.

    Two routes are the same if all fields but `declaration` are equal. Exactly one of `topic` and
    `router` is set.
    """

    key: str = ""
    """For EXACT and PATTERN: what to match. Kept, and part of the identity, for all kinds."""
    attributes: tuple[tuple[str, bytes], ...] = ()
    """For ATTRIBUTES: (name, msgpack of the value) pairs; msgpack nil: present with any value."""
    combine: AttributesMatch = AttributesMatch.ALL_OF
    topic: str | None = None
    router: str | None = None
    declaration: bytes = b""
    """The adapter's own arguments of this route, opaque, part of its identity."""


class QueueRef(msgspec.Struct, frozen=True, gc=False):
    """One queue of a topic, and the Raft group that holds it."""

    id: QueueId
    group: RaftGroup


class TopicInfo(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A topic as a gateway knows it."""

    tenant: str
    name: str
    id: TopicId
    version: int
    """Rises with every change of options or groups."""
    options: TopicOptions
    queues: tuple[QueueRef, ...]
    """All it has, by rising number."""
    groups: dict[str, GroupOptions]
    ring: bytes = b""
    """The number of the queue of each hash slot (`common.ring`); empty as long as nobody has
    resized the topic: then a key is in queue `key % queues`. Queues that it does not name are
    sealed: they are consumed, and nothing new is written to them."""
    once: bytes = b""
    """The same for what is published under an identity that outlives its process, of a topic that
    was spread over other Raft groups: each key stays in the group that it was in before, where
    repeats are known. Empty: `ring` is for that too."""

    def queue_of(self, key: int, *, once: bool = False) -> QueueRef:
        """The queue in which messages with an ordering key, or what stands for one, are stored. The
        only place that knows (hot). `once`: they have an identity that outlives their process.
        """
        queues, ring = self.queues, self.once if once and self.once else self.ring
        if not ring:
            return queues[key % len(queues)]
        number = ring[key % len(ring)]
        if number < len(queues) and queues[number].id & NUMBER_BITS == number:
            return queues[number]
        # A sealed queue before it is gone, so that it stands further in front.
        return next(each for each in queues if each.id & NUMBER_BITS == number)

    def queue_numbered(self, number: int) -> QueueRef:
        """The queue of a number. Raises KernelError NOT_FOUND."""
        queues = self.queues
        if 0 <= number < len(queues) and queues[number].id & NUMBER_BITS == number:
            return queues[number]
        for each in queues:
            if each.id & NUMBER_BITS == number:
                return each
        raise KernelError(Code.NOT_FOUND, f"topic {self.name} has no queue {number}")

    @property
    def numbers(self) -> list[int]:
        """Of its queues: 0 to how many it has, unless it was resized."""
        return [each.id & NUMBER_BITS for each in self.queues]

    @property
    def writable(self) -> tuple[QueueRef, ...]:
        """The queues that take messages, of whatever kind: they are not sealed."""
        both = self.ring + self.once
        if not both:
            return self.queues
        return tuple(each for each in self.queues if each.id & NUMBER_BITS in both)

    @property
    def regular(self) -> tuple[QueueRef, ...]:
        """Those of `writable` that take what is published without such an identity (see `once`)."""
        ring = self.ring
        return tuple(each for each in self.writable if not ring or each.id & NUMBER_BITS in ring)

    def only(self, queue: QueueRef) -> TopicInfo:
        """The topic as if it had but one queue."""
        return msgspec.structs.replace(self, queues=(queue,), ring=b"", once=b"")


class RouterInfo(msgspec.Struct, frozen=True):
    """A router and its routes as a gateway knows them."""

    tenant: str
    name: str
    version: int
    options: RouterOptions
    routes: tuple[Route, ...]


class Standing(StrEnum):
    """What has become of a message for a group."""

    WAITING = "waiting"
    """For a consumer that asks, for its ordering key to be free, or for a filter to be another."""
    DELAYED = "delayed"
    """It is not due yet: published with a delay, or given back with one."""
    LEASED = "leased"
    """Somebody has it until a time."""
    HELD = "held"
    """A consumer has it for as long as it is connected."""
    DONE = "done"
    """Acked, dead-lettered, expired or dropped: the group does not get it again."""
    GONE = "gone"
    """The queue has none at that offset, or no more."""


class MessageStanding(msgspec.Struct, frozen=True):
    """One message and one group, exact at the moment it was read."""

    state: Standing
    failures: int = 0
    """Deliveries that came to nothing."""
    until_ms: int | None = None
    """Log time at which a lease or a delay ends (ms since the epoch); None: there is none, or, of
    what was published with a delay, what the message says.
    """


class TopicStatistics(msgspec.Struct, frozen=True):
    """Figures of a topic and one group, exact at the moment they were read."""

    ready: int
    """Deliverable now: not acked, not leased, not delayed."""
    leased: int
    delayed: int
    """Not yet due: published with a delay, or given back with one."""
    oldest_ms: int | None
    """Log time at which the oldest unacked message was stored; None if there is none."""
    consumers: int
    """Push consumers attached."""
    filtered: int = 0
    """Messages that a filter has kept from the group since its leader began."""
    expired: int = 0
    """Messages that the group has lost unacked because they were too old (by retention, or by a TTL
    where nothing takes dead letters), since it began."""
    position: int = 0
    """Of one queue: the first offset that the group is not done with. 0 for a whole topic."""
    message: MessageStanding | None = None
    """Of the message that was asked for; None: none was, or by a store that knows no answer."""
