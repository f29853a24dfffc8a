"""The environment that all calls of one adapter share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from kernel.api.tracing import ConnectedUser

from .codec.plain_sends import Splitter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from adapters.base import CallMeter, TrafficMeter
    from adapters.limiting import Limiter
    from adapters.listener_figures import ListenerFigures
    from kernel.api.client import (
        Client,
        LeaseChange,
        PublishBatch,
        Received,
        ReceiveSpec,
    )
    from kernel.api.model import TopicInfo
    from kernel.common.errors import KernelError
    from kernel.common.ports import Clock
    from kernel.quotas.account import Account

    from .clients.callers import Caller, Gate
    from .clients.registry import Clients
    from .codec.answer_encoding import AnswerPlace
    from .services.questions import Producers
    from .settings import RocketmqSettings
    from .topics.ready_topics import Topics


T = TypeVar("T")


class Counters:
    """What the adapter has done since it started. Plain integers, read when somebody asks."""

    __slots__ = (
        "acked",
        "calls_failed",
        "calls_refused",
        "delivered",
        "polls_abandoned",
        "polls_empty",
        "recalled",
        "revoked",
        "sent",
        "streams",
        "streams_cut",
    )

    def __init__(self) -> None:
        self.sent = 0
        """Messages stored, those dropped as duplicates included."""
        self.delivered = 0
        self.acked = 0
        self.polls_empty = 0
        self.polls_abandoned = 0
        """Receives whose client went away while messages were on their way to it."""
        self.recalled = 0
        """Delayed messages taken back."""
        self.revoked = 0
        """Polls, streams and renewals ended because their caller has lost the right to them."""
        self.calls_refused = 0
        """Calls whose status is an error of the caller's making, or one that passes."""
        self.calls_failed = 0
        """Calls that ended by a bug of ours."""
        self.streams = 0
        """Telemetry streams opened."""
        self.streams_cut = 0
        """Those ended because the client did not read."""


class Publisher(Protocol):
    """Kernel batches that the calls of one turn of the event loop share (`waiting`)."""

    number: int
    """Of the batch that is open now; each has its own."""

    def batch(self, by: ConnectedUser | None = None) -> PublishBatch:
        """The batch that is open now: add to it at once, without awaiting in between. `by`: who
        publishes what is added now.
        """

    def stored(self, batch: PublishBatch) -> Awaitable[None]:
        """Returns once the batch has completed; call it right after the last `add`."""


class Settler(Protocol):
    """Lease changes that the calls of one turn make together (`waiting`)."""

    def settle(
        self, topic: TopicInfo, group: str, changes: Sequence[LeaseChange]
    ) -> Awaitable[Sequence[KernelError | None]]:
        """As `Client.settle_leases`. Raises KernelError."""


class Receiver(Protocol):
    """Receives that may have to wait (`waiting`)."""

    async def receive(self, spec: ReceiveSpec, check: Callable[[], None]) -> Received:
        """As `Client.receive`, but ends when the adapter drains. Raises KernelError,
        RocketmqError, and what `check` raises once whoever waits may not receive any more.
        """

    async def repeat(
        self, look: Callable[[], Awaitable[T | None]], wait_ms: int, check: Callable[[], None]
    ) -> T | None:
        """What `look` finds, asked again and again for so long; None if it finds nothing, or the
        adapter drains. Raises as `receive`.
        """

    def give_back(self, spec: ReceiveSpec, tokens: Sequence[bytes], slots: Sequence[bytes]) -> None:
        """Make leased messages that have reached nobody ready again, without anyone waiting."""

    def shorten(self, spec: ReceiveSpec, tokens: Sequence[bytes], lease_ms: int) -> None:
        """Let leases end after so long, of messages that their client may have got or not."""


class Call(Protocol):
    """A call, as the actions see it."""

    metadata: Iterable[tuple[str, str | bytes]]
    """The headers of the call."""
    caller: Caller | None
    """Who makes it, once that is known."""
    account: Account | None
    """What limits it, if anything does."""
    bytes_out: int
    """Octets of the messages that were written."""

    @property
    def certified(self) -> str | None:
        """The login that the client's certificate names; None: it has shown none."""

    @property
    def peer(self) -> str:
        """Address and port of who has connected with gRPC; empty: not known."""

    @property
    def is_encrypted(self) -> bool:
        """Whether it came by TLS."""

    def time_remaining(self) -> float | None:
        """Seconds until the call's deadline; None: it has none."""

    async def write(self, message: bytes) -> None:
        """Send a message of a stream; returns when there is room for another."""

    async def read(self) -> bytes | None:
        """The next message of the client's stream; None: it has ended."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Shared by all calls of one adapter."""

    client: Client
    clock: Clock
    settings: RocketmqSettings
    gate: Gate
    topics: Topics
    publisher: Publisher
    receiver: Receiver
    settler: Settler
    clients: Clients
    producers: Producers
    limiter: Limiter
    sleep: Callable[[float], Awaitable[object]]
    """Returns after so many seconds."""
    figures_of: Mapping[str, ListenerFigures]
    """By listener."""
    meter: TrafficMeter | None = None
    """None: nobody counts."""
    calls: CallMeter | None = None
    counters: Counters = field(default_factory=Counters)
    relayed: dict[str, str] = field(default_factory=dict)
    """Address and port of clients that have connected with gRPC by a relay, by those of the relay.
    """
    splitter: Splitter = field(default_factory=Splitter)

    def by(self, caller: Caller, call: Call) -> ConnectedUser | None:
        """Who is noted to publish, take and settle; None: nothing is noted. As its connection
        stands its telemetry stream: gRPC tells no other.
        """
        if not self.client.is_tracing:
            return None
        principal = caller.rights.principal
        key = (caller.tenant, caller.client_id)
        return ConnectedUser(
            principal.tenant,
            principal.name,
            "rocketmq",
            self.address_of(call),
            self.clients.connection_of(key),
        )

    def address_of(self, call: Call) -> str:
        """Address and port of the client that makes a call; empty: not known."""
        peer = call.peer
        return self.relayed.get(peer, peer)

    def admit(self, call: Call) -> Caller:
        """Who makes a call; looked up once, by its headers. Raises RocketmqError."""
        caller = call.caller
        if caller is None:
            caller = call.caller = self.gate.admit(
                call.metadata, self.clock.wall_ms(), call.certified
            )
        return caller


@dataclass(frozen=True, slots=True)
class Listener:
    """A listener as its calls see it."""

    name: str
    bound: AnswerPlace
    advertised: AnswerPlace | None
