"""The environment that all requests of one adapter share, and the context that each one has."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from . import names
from .messages.attempts import Attempts
from .names import QueueAddress
from .queues.recents import Recents
from .settings import FIRST_RECEIVES_MAX, RECENT_MAX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from contextlib import AbstractAsyncContextManager

    from adapters.base import CallMeter
    from adapters.limiting import Limiter
    from adapters.listener_figures import ListenerFigures
    from adapters.refused import Refused
    from auth.policies.policy_rules import Permission
    from auth.principal import Principal
    from kernel.api.client import Client, PublishBatch, Received, ReceiveSpec
    from kernel.api.model import TopicInfo
    from kernel.api.tracing import ConnectedUser
    from kernel.common.ports import Clock
    from kernel.quotas.account import Account

    from .gate import Caller
    from .http.refusal import Refusal
    from .queues.ready_queue import Queue
    from .settings import SqsSettings


class Counters:
    """What the adapter has done since it started. Plain integers, read when somebody asks."""

    __slots__ = (
        "connections",
        "connections_refused",
        "deleted",
        "empty_receives",
        "errors_client",
        "errors_server",
        "polls_abandoned",
        "received",
        "requests_json",
        "requests_query",
        "sent",
    )

    def __init__(self) -> None:
        self.connections = 0
        self.connections_refused = 0
        """Over the limit, or too slow to send a request."""
        self.requests_json = 0
        self.requests_query = 0
        self.errors_client = 0
        self.errors_server = 0
        self.sent = 0
        """Messages stored, those dropped as duplicates included."""
        self.received = 0
        self.empty_receives = 0
        self.deleted = 0
        self.polls_abandoned = 0
        """Long polls whose client went away before a message came."""


class Catalogue(Protocol):
    """Lists topics, which `kernel.api.client.Client` finds by name only."""

    def topics(self, tenant: str) -> Iterable[TopicInfo]:
        """Every topic of a tenant, in any order."""


class QueueFinder(Protocol):
    """Finds queues (`queues`)."""

    async def topic(self, tenant: str, name: str) -> TopicInfo | None:
        """A topic that SQS may see, by name; None if there is none."""

    async def is_taken(self, tenant: str, name: str) -> bool:
        """Whether a topic has the name, be it visible or not."""

    def known(self, context: Context, url: str | None, number: Permission) -> Queue | None:
        """As `find`, without waiting (hot); None: this gateway has to load the name first."""

    async def find(self, context: Context, url: str | None, number: Permission) -> Queue:
        """The queue of a URL, which the caller may use as `number` says. Raises SqsError."""

    async def find_to_consume(self, context: Context, url: str | None, number: Permission) -> Queue:
        """As `find`; makes the group `default` if the topic has none yet (a stream)."""


class Publisher(Protocol):
    """Kernel batches that the requests of one turn of the event loop share (`waiting`)."""

    def batch(self, by: ConnectedUser | None = None) -> PublishBatch:
        """The batch that is open now: add to it at once, without awaiting in between. `by`: who
        publishes what is added now.
        """

    def when_stored(self, batch: PublishBatch, action: Callable[[], None]) -> None:
        """Have `action`, which raises nothing, called once the batch has completed, in a later
        turn; call it right after the last `add`.
        """

    def stored(self, batch: PublishBatch) -> Awaitable[None]:
        """Returns once the batch has completed; call it right after the last `add`."""


class Peer(Protocol):
    """The connection by which a request came (`connection`)."""

    is_lost: bool
    listener: str
    """Name of the listener it came in by."""
    scheme: str
    """`http` or `https`."""
    consumer_key: int
    """Its number, unique in this process."""

    @property
    def peer(self) -> str:
        """The client's address, `host:port`."""

    @property
    def figures(self) -> ListenerFigures:
        """Of its listener."""

    @property
    def local_address(self) -> str:
        """Address and port that the client reached, as in a URL."""

    def pause(self, delay_ms: int) -> None:
        """Do not read for so long: a limit is exceeded."""

    def connected_user(self, principal: Principal) -> ConnectedUser:
        """Who sends a request, and by which connection."""

    @property
    def is_counted(self) -> bool:
        """Whether it `belongs_to` somebody."""

    def belongs_to_tenant(self, tenant: str) -> None:
        """Whose request it was that came last."""

    def belongs_to(self, account: Account) -> str | None:
        """Count the connection as one of an account's, as long as it is there; the limit that
        refuses it: then it is closed behind its answer.
        """

    def when_lost(self, action: Callable[[], object] | None) -> None:
        """Have `action` called when the connection is lost; None: nothing any more."""


class Polls(Protocol):
    """Receives that may have to wait (`waiting`)."""

    async def receive(
        self, spec: ReceiveSpec, peer: Peer, check: Callable[[], None]
    ) -> Received | None:
        """As `Client.receive`, but None when the peer is lost. Raises KernelError, and what `check`
        raises once whoever waits may not receive any more.
        """


class Locks(Protocol):
    """One change of a queue at a time (`kernel.common.keyed_lock.KeyedLock`)."""

    def of(self, tenant: str, name: str) -> AbstractAsyncContextManager[None]:
        """The lock of a queue's name."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Shared by all requests of one adapter."""

    client: Client
    catalogue: Catalogue
    clock: Clock
    settings: SqsSettings
    queues: QueueFinder
    publisher: Publisher
    polls: Polls
    locks: Locks
    refused: Refused[Refusal]
    limiter: Limiter
    calls: CallMeter | None = None
    """None: nobody counts."""
    counters: Counters = field(default_factory=Counters)
    attempts: Attempts = field(default_factory=Attempts)
    purges: Recents[int] = field(default_factory=lambda: Recents(RECENT_MAX))
    """Topic ids."""
    deletions: Recents[tuple[str, str]] = field(default_factory=lambda: Recents(RECENT_MAX))
    """(tenant, name) of deleted queues."""
    fifo_deletions: Recents[bytes] = field(default_factory=lambda: Recents(RECENT_MAX))
    """Lease tokens: a repeated DeleteMessage, such as an SDK's retry, succeeds."""
    first_receives: Recents[tuple[int, int]] = field(
        default_factory=lambda: Recents(FIRST_RECEIVES_MAX)
    )
    """(queue id, offset) of messages."""


class Context(NamedTuple):
    """One request."""

    environment: Environment
    caller: Caller
    action: str
    base_url: Callable[[], str]
    """Scheme and host of queue URLs, e.g. `http://127.0.0.1:9324`."""
    trace_header: bytes | None
    """Header X-Amzn-Trace-Id."""
    peer: Peer
    account: Account
    """What limits its caller."""

    @property
    def by(self) -> ConnectedUser | None:
        """Who is noted to publish, take and settle; None: nothing is noted."""
        if not self.environment.client.is_tracing:
            return None
        return self.peer.connected_user(self.caller.rights.principal)

    def url_of(self, name: str) -> str:
        """URL of a queue of the caller's account."""
        return names.queue_url(self.base_url(), QueueAddress(self.caller.account, name))

    def arn_of(self, name: str) -> str:
        """ARN of a queue of the caller's account."""
        return names.queue_arn(self.caller.region, QueueAddress(self.caller.account, name))
