"""The contract of adapters: what each of them is to the gateway, and what the gateway gives it.

An adapter is made with a kernel client, a `SignIn`, listener addresses and its settings; then

    start -> (serving) -> drain -> stop

`drain` stops taking new connections and says goodbye in the protocol's own way; `stop` ends what
is left. Both are bounded in time by their caller. No adapter imports another.

What the rest of Weir must know about an adapter stands in its `Declaration`, which protocols.yaml
names and the gateway finds there: nothing outside an adapter's folder knows it (docs/adapter.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from auth.principal import DEFAULT_TENANT, Principal

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from auth.policies.policy_decisions import PolicyBook
    from auth.policies.policy_rules import Permission
    from auth.private_files.tls import PemPair
    from auth.users.directory import Directory
    from kernel.api.changes import PutTopic
    from kernel.api.client import Client
    from kernel.api.model import GroupOptions, RouterOptions, TopicInfo, TopicOptions
    from kernel.api.origins import OriginReader
    from kernel.common.ports import Clock, Random
    from kernel.quotas.accounts import Quotas

    from .connections import OpenConnection
    from .definitions import Foreign
    from .listener_figures import ListenerFigures
    from .memory import GatewayMemory
    from .moving import ConsumersByKey

    Application = Callable[..., Awaitable[None]]
    """An ASGI application: called with scope, receive, send."""


KERNEL_ORIGIN: Final = 0
"""The origin of what no adapter wrote: `weir message send`."""

ORIGIN_MIN: Final = 1
ORIGIN_MAX: Final = 254
"""What adapters may declare: 0 is the kernel's, 255 the server's own moves
(`kernel.api.origins.INTERNAL`)."""


class Rights(Protocol):
    """What one connection's principal may do now (`auth.policies.policy_decisions.Access`)."""

    @property
    def principal(self) -> Principal:
        """The principal that has signed in."""

    def allows(self, number: Permission, name: str, /) -> bool:
        """Whether `name` may be used so; cheap enough for every call, not for every message."""

    def is_alive(self) -> bool:
        """False once the principal was removed, disabled or signed out."""

    def rules(self) -> object:
        """What decides now: another object whenever what is allowed may be another."""


class Everyone:
    """Rights of a listener that signs nobody in."""

    principal: Final = Principal(DEFAULT_TENANT, "anonymous")

    def allows(self, number: Permission, name: str, /) -> bool:
        """It allows everything."""
        return True

    def is_alive(self) -> bool:
        """Nobody can remove it."""
        return True

    def rules(self) -> object:
        """Always the same."""
        return self


class Holder(Protocol):
    """Somebody who is connected and holds what rights were asked for when it began: consumers,
    subscriptions, a waiting poll. What is done message by message or call by call asks each time.
    """

    def recheck(self) -> Iterator[None]:
        """Rights may have changed: end, in the protocol's own way, what is held without right by
        now, and say goodbye to a user that is gone. Yields after each `RECHECK_STEP` of what it
        holds, so that whoever asks decides on how much is done at a time; what comes or goes
        meanwhile does no harm.
        """


RECHECK_STEP = 256
"""Held things that are looked at between two yields of `Holder.recheck`: about 0.1 ms."""


class SignIn(Protocol):
    """Turns a login and a password into rights. The gateway makes it from `auth`."""

    async def sign_in(self, login: str, password: bytes, address: str) -> Rights:
        """Check a password sent from `address`; `login` is as typed (`auth.principal.split_login`).

        Raises `auth.errors.AuthError`: BAD_CREDENTIALS (one answer for every cause), BUSY or
        UNAVAILABLE if nothing could be decided.
        """

    def without_password(self, login: str, address: str, /) -> Rights:
        """The rights of a user whose certificate was verified. Raises AuthError BAD_CREDENTIALS:
        there is none of that name, or it is disabled.
        """


class Users(SignIn, Protocol):
    """The users of the store, for every way of signing in."""

    @property
    def directory(self) -> Directory:
        """Who there is: users, access keys and their secrets."""

    @property
    def policies(self) -> PolicyBook:
        """Who may do what: gives out the rights of a principal that was found otherwise."""

    async def sign_in(
        self, login: str, password: bytes, address: str, client_id: str | None = None
    ) -> Rights:
        """As `SignIn.sign_in`; `client_id` is what `${clientid}` stands for in policies."""

    def without_password(self, login: str, address: str, client_id: str | None = None) -> Rights:
        """As `SignIn.without_password`."""


class Administration(Protocol):
    """The server's own admin API (docs/reference/api.md), for a protocol that has one for the tools
    of its operators: same handlers, same rights.
    """

    async def ask(
        self,
        rights: Rights | None,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes = b"",
    ) -> tuple[int, bytes]:
        """Status and JSON of a request below /api/v1, on behalf of who has these rights; None: of
        the operator, by an adapter that has seen to it that its caller may have the answer. `path`
        is percent-encoded. Raises KernelError UNAVAILABLE (it is not served yet), TOO_LARGE.
        """


class DeliveryCounter(Protocol):
    """Counts what one consumer group of one topic is handed (`metering.counters.Counter`). What
    is leased until a deadline is counted by the store, not here.
    """

    def count(self, messages: int, size_bytes: int, units_4k: int, /) -> None:
        """A batch: number of messages, their bytes together, their 4 KiB units together."""


class DeliveryMeter(Protocol):
    """Gives out counters. The gateway makes it from `metering`."""

    def delivery_counter(self, tenant: str, topic: str, group: str) -> DeliveryCounter:
        """The counter of a (topic, group); kept by the caller as long as it delivers."""


class TrafficCounter(DeliveryCounter, Protocol):
    """Counts one thing of one tenant."""

    def count_one(self, size_bytes: int, /) -> None:
        """Count one message."""

    def call(self, bytes_in: int, bytes_out: int, /) -> None:
        """One call of an API, with the octets of its request and of its answer."""

    def octets(self, bytes_in: int, bytes_out: int, /) -> None:
        """Octets that came and went, and nothing else."""


class CallCounter(Protocol):
    """Counts calls of one name that are carried out (`metering.counters.Counter`)."""

    def call(self, bytes_in: int, bytes_out: int, /) -> None:
        """One, with the octets of its request and of its answer (hot)."""


class CallMeter(Protocol):
    """Counts the calls of one adapter's API (`metering.calls.Calls`)."""

    def counter(self, tenant: str, name: str, /) -> CallCounter:
        """Counts those that are carried out; kept by the adapter, with whoever makes them."""

    def ended(self, tenant: str, name: str, outcome: str, bytes_in: int, bytes_out: int, /) -> None:
        """Count one call that ended otherwise: `metering.schema.Outcome`."""


class TrafficMeter(DeliveryMeter, Protocol):
    """The meter of one protocol (`metering.traffic.Traffic`): everything that no log holds.

    What the log holds (messages stored, timed leases, acks) the store counts by the origin of the
    session: an adapter that opens its sessions, and makes its receives and lease changes, with its
    declared origin has nothing else to do for it.
    """

    def delivery_counter(
        self, tenant: str, topic: str, group: str, queue_class: str = "standard"
    ) -> DeliveryCounter:
        """As `DeliveryMeter`; `queue_class` is one of `metering.schema.QueueClass` (MQTT: the
        delivery's quality of service).
        """

    def unleased_counter(self, tenant: str, topic: str, group: str) -> DeliveryCounter:
        """The counter of what a group's members are handed without a lease, where the protocol's
        other deliveries are timed leases; cheap enough to ask for with every call.
        """

    def calls(self, actions: Mapping[str, str]) -> CallMeter:
        """Counts calls of an API. `actions`: `metering.schema.Action` by the call's own name; all
        others administer.
        """

    def unstored_counter(self, tenant: str, queue_class: str = "standard") -> TrafficCounter:
        """Messages that were taken for somebody, but that neither the log nor a transient topic
        holds (MQTT: for live subscriptions only). `queue_class`: see `delivery_counter`.
        """

    def unroutable_counter(self, tenant: str) -> TrafficCounter:
        """Messages that were taken and had nobody to go to."""

    def octet_counter(self, tenant: str) -> TrafficCounter:
        """Octets of a tenant's connections."""

    def connection_opened(self, tenant: str) -> None:
        """A tenant has one connection more."""

    def connection_closed(self, tenant: str) -> None:
        """A tenant has one connection less."""


@dataclass(frozen=True, slots=True)
class ListenerAddress:
    """Where one listener binds: port 0 takes a free one. `tls` given: a handshake comes first."""

    name: str
    host: str
    port: int
    tls: ssl.SSLContext | None = None
    reuse_port: bool = False
    """Share the port between worker processes (SO_REUSEPORT)."""


@dataclass(frozen=True, slots=True)
class AdapterStatistics:
    """Figures of an adapter; `counters` only rise while the process lives, `gauges` move."""

    connections: int
    counters: Mapping[str, int] = field(default_factory=dict)
    gauges: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By listener and reason (`refused.Refused.counts`)."""
    listeners: Sequence[ListenerFigures] = ()
    """Of each of its listeners."""
    staying: Mapping[str, int] = field(default_factory=dict)
    """Clients that came straight back when they were asked to move, and how often."""


class Adapter(Protocol):
    """One protocol, served."""

    name: str
    """Its key in protocols.yaml."""

    async def start(self) -> None:
        """Bind every listener. Raises OSError if one cannot be bound; then none is."""

    def addresses(self) -> Mapping[str, tuple[str, int]]:
        """Listener name to the address bound (the real port, if 0 was asked for)."""

    def move(
        self, amount: int, to: Mapping[str, str], consumers_by_key: ConsumersByKey | None = None
    ) -> int:
        """Ask so many clients to go to another gateway, in the protocol's own way, once what they
        have asked for is answered; how many were asked. Does not wait, and goes on taking new
        connections. `to`: where, by listener name: `host:port` as clients there dial it; clients of
        a listener that is not named are told to go, but not where. The caller empties `to` when
        that gateway is gone, or its clients may come back. One that was asked before and is still
        there is not asked again; one that came straight back is, less and less often.
        `consumers_by_key`: only clients with these consumers, and `amount` counts consumers
        (`moving.Moving`).
        """

    def holders(self) -> Iterable[Holder]:
        """All who hold something now; a copy, through which others may go in their own time."""

    def connections(self) -> Iterable[OpenConnection]:
        """All that are open; a copy, through which others may go in their own time."""

    async def drain(self) -> None:
        """Take no new connection, tell every client to go, return when all have gone."""

    async def stop(self) -> None:
        """Close listeners and what connections are left, at once. Idempotent."""

    def spells(self, topic: str) -> bool:
        """Whether its clients can name a kernel topic of this name, which is printable."""

    def statistics(self) -> AdapterStatistics:
        """Figures now."""


# --- The declaration ------------------------------------------------------------------------


class ListenerSettings(Protocol):
    """One listener as protocols.yaml says it (`gateway.config.schema.Listener`)."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def tls(self) -> bool: ...
    @property
    def plain_too(self) -> bool: ...
    @property
    def advertised(self) -> str | None: ...
    @property
    def client_certificate(self) -> str: ...


class ProtocolSettings(Protocol):
    """An adapter's entry in protocols.yaml (`gateway.config.schema.Protocol`), merged and checked.
    To ask for what the entry does not have is a KeyError.
    """

    def limit(self, name: str) -> int:
        """The value of a limit."""

    def values(self) -> Mapping[str, bool | int | str]:
        """All limits and options by name."""

    def flag(self, name: str) -> bool:
        """A yes-or-no option."""

    def number(self, name: str) -> int:
        """A whole-number option."""

    def text(self, name: str) -> str:
        """A text option."""

    def open_listeners(self) -> Mapping[str, ListenerSettings]:
        """The listeners to bind, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What the gateway makes an adapter of."""

    settings: ProtocolSettings
    client: Client
    users: Users
    clock: Clock
    random: Random
    memory: GatewayMemory
    """What clients of all protocols together may make this process hold."""
    quotas: Quotas
    """What tenants, users, topics and listeners may use."""
    tenant_names: Mapping[str, str]
    """What the protocol calls each tenant that has a name, by tenant. Always as it is now: to be
    asked when somebody connects or calls, and not copied."""
    tenants_named: Mapping[str, str]
    """The tenant of each of these names; likewise."""
    meter: TrafficMeter | None
    """None: the metering is switched off."""
    version: str
    """Weir's own."""
    listeners: Callable[[], Sequence[ListenerAddress]]
    """Where the open listeners bind, TLS contexts and all: for `transport.Listeners`."""
    certificate: Callable[[], PemPair]
    """This node's certificate with its key as they are now, for an adapter whose library makes TLS
    itself: it asks at each handshake, from any thread."""
    client_authority: Path | None
    """Who signs the certificates of clients."""


class LoginKind(Enum):
    """How clients of a protocol prove who they are: which of the development logins is theirs."""

    PASSWORD = "password"  # noqa: S105 - a kind, not one
    ACCESS_KEY = "access key"


WEIR: Final = "weir"


@dataclass(frozen=True, slots=True)
class Trial:
    """One way to try a protocol, shown when a server starts."""

    program: str
    """What has to be installed; `WEIR` is."""
    listener: str
    """Its name in the settings."""
    command: str
    """To be copied: `{address}` and `{weir}` are filled in. It signs in by a development login."""


def _no_fault(_name: str) -> str | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantWord:
    """A protocol's own word for a tenant, whose name in it the settings may give (`known_as`)."""

    word: str
    """As people say it: virtual host."""
    shown_as: str
    """Its key in what `weir tenant ls` shows."""
    fault: Callable[[str], str | None] | None = None
    """What is wrong with a name that was given; None: what is wrong with any name."""
    own_fault: Callable[[str], str | None] = _no_fault
    """What is wrong if a tenant of this name is given no other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTypes:
    """What an operator may say of the type of a stream (`weir topic create --type`)."""

    words: Sequence[str]
    """In the order in which they are listed. `normal` is every stream's without another word, and
    asked about like the others if it is among them; `work` is no stream's."""
    typed: Callable[[TopicOptions, str], TopicOptions]
    """The options of a topic that is made with one of the words."""
    word: Callable[[TopicOptions], str | None]
    """Which of them a topic has; None: none."""


class GroupDefaults(Protocol):
    """What a consumer group has that an operator makes, unless other settings are asked for."""

    def options(self, topic: TopicInfo, group: str) -> GroupOptions:
        """The settings of a new group of a topic."""

    def dead_letters(self, tenant: str, group: str) -> PutTopic | None:
        """What makes the topic that those settings send dead letters to; None: they name none."""


def _fine(_listener: ListenerSettings) -> Iterable[tuple[str, str]]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What all of Weir must know about an adapter, without loading what serves clients.

    Two things are in what is stored and billed, and so fixed for ever: `name` and `origin`.
    """

    name: str
    """Its key in protocols.yaml, and the protocol of what it is billed for."""
    title: str
    """As people write it."""
    origin: int
    """The byte in a stored message that says who wrote its native block: ORIGIN_MIN to ORIGIN_MAX,
    no other adapter's ever (docs/adapter.md has those that are taken)."""
    make: Callable[[Services], Adapter]
    """The adapter, on the event loop that will serve it; imports what that takes."""
    reader: Callable[[], OriginReader] | None = None
    """Who reads its native blocks, wherever stored messages are; None: it writes none."""
    tenant: TenantWord | None = None
    """None: it has no word for tenants; users of `acme` sign in as `acme:USER`."""
    needs: frozenset[str] = frozenset()
    """Limits and options that its entry must have: `make` may count on them."""
    login: LoginKind = LoginKind.PASSWORD
    trials: tuple[Trial, ...] = ()
    """The first that works on this machine is proposed."""
    leases_are_timed: bool = False
    """All deliveries are leased by the log until a deadline, and so counted by the store."""
    plain_class: str = "standard"
    """What the bill calls the class of a message that was published with no grade, order or delay
    (`metering.schema.QueueClass`)."""
    tells_address_only_to_move: bool = False
    """Clients are told an address only when they are to go to another gateway."""
    reads_plain_too: bool = False
    """Its TLS listeners may take plain connections as well (`plain_too`)."""
    listener_faults: Callable[[ListenerSettings], Iterable[tuple[str, str]]] = _fine
    """(key, what is wrong with it) of a listener, besides what holds for all."""
    session_name: Callable[[str], str] | None = None
    """The kernel's name for the subscriber that a client's session is, by its client id; None: it
    has no sessions that outlive connections."""
    topic_types: Callable[[], TopicTypes] | None = None
    """The types of streams that its clients know; imports what that takes. A word that several
    adapters know is told to all of them."""
    management: Callable[[Services, Adapter, Administration], Application] | None = None
    """The HTTP API that operators of its protocol have tools for (`node.management`), served beside
    the adapter of this process; None: there is none."""
    predeclared: Callable[[], Mapping[str, RouterOptions]] | None = None
    """Routers with reserved names that it makes when they are first used, by name; None: none."""
    definitions: Callable[[bytes, Mapping[str, str]], Foreign | None] | None = None
    """What a document (JSON) of another broker of its protocol defines; None: it is none of those.
    It is told the tenants by what the protocol calls them. Raises KernelError INVALID_ARGUMENT."""
    group_defaults: Callable[[ProtocolSettings], GroupDefaults] | None = None
    """What groups get that are made by hand, by the adapter's settings, whether it is served or
    not; the first in protocols.yaml that has them decides."""
