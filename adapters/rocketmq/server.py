"""The driver: gRPC servers, the clock and tasks around `Service`, and the adapter as a whole.

It decides nothing. One gRPC server a listener, because a route depends on the listener a call came
in by; before one for TLS and plain text a `relay`. gRPC moves messages as bytes here: `Service`
parses them.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import grpc
import structlog

from adapters.base import AdapterStatistics
from adapters.fair_scheduler import fair_scheduler_of
from adapters.limiting import Limiter
from adapters.listener_figures import CROWDED, ListenerFigures
from adapters.memory import GatewayMemory
from adapters.rocketmq.clients.callers import Gate
from adapters.rocketmq.clients.registry import Clients
from adapters.rocketmq.environment import Environment, Listener
from adapters.rocketmq.errors import REFUSALS, RocketmqError
from adapters.rocketmq.messages.stored import register_origin
from adapters.rocketmq.names import shown_topic, topic_name
from adapters.rocketmq.origin import ORIGIN_BYTE
from adapters.rocketmq.services.call_counting import ACTIONS
from adapters.rocketmq.services.messaging_service import SERVICE, Service
from adapters.rocketmq.services.questions import Producers
from adapters.rocketmq.settings import DRAIN_GRACE_S, STREAMS_MAX, RocketmqSettings
from adapters.rocketmq.topics.ready_topics import Topics
from adapters.rocketmq.topics.routes import place_named, place_of
from adapters.rocketmq.transport.fair_calls import FairCalls
from adapters.rocketmq.transport.grpc_calls import grpc_calls
from adapters.rocketmq.transport.relay import Relay
from adapters.rocketmq.transport.telemetry import Streams
from adapters.rocketmq.transport.waiting import Polls, SharedBatches, SharedChanges
from adapters.transport import Tasks
from auth.principal import split_login
from auth.sign_in.mqv2 import MqV2Verifier
from kernel.common.keyed_lock import KeyedLock
from kernel.quotas.accounts import Quotas

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from adapters.base import Holder, Rights, TrafficMeter
    from adapters.connections import OpenConnection
    from adapters.moving import ConsumersByKey
    from auth.policies.policy_decisions import PolicyBook
    from auth.private_files.tls import PemPair
    from auth.users.directory import Directory
    from auth.users.records import AccessKey
    from kernel.api.client import Client
    from kernel.api.origins import Origins
    from kernel.common.ports import Clock

    from .codec.answer_encoding import AnswerPlace

TICK_S: Final = 1.0
"""How often leases are looked at that must be renewed: their half time is 30 s."""

_log = structlog.get_logger("weir.rocketmq")


@dataclass(frozen=True, slots=True)
class GrpcListener:
    """Where one listener binds: port 0 takes a free one. gRPC makes its own TLS, from PEM."""

    name: str
    host: str
    port: int
    tls: PemPair | None = None
    plain_too: bool = False
    """With `tls`: clients may come without TLS as well, on the same port."""
    client_authority: bytes | None = None
    """With `tls`: clients need a certificate of one of these, PEM."""
    renewed: Callable[[], PemPair] | None = None
    """With `tls`: the certificate as it is now, asked for at each handshake."""
    reuse_port: bool = False
    """Share the port between worker processes (SO_REUSEPORT)."""


class _GrpcServer(Protocol):
    """What is used of grpc.aio.Server, which has no types."""

    def add_generic_rpc_handlers(self, handlers: Iterable[object], /) -> None:
        """Serve these calls."""

    def add_insecure_port(self, address: str, /) -> int:
        """Bind; the port. Raises RuntimeError."""

    def add_secure_port(self, address: str, credentials: object, /) -> int:
        """Bind for TLS; the port. Raises RuntimeError."""

    async def start(self) -> None:
        """Take calls."""

    async def stop(self, grace: float | None) -> None:
        """Take no more calls, and end those there are after so many seconds."""


class RocketmqAdapter:
    """RocketMQ 5 (apache.rocketmq.v2 over gRPC), served. `adapters.base.Adapter`."""

    name = "rocketmq"

    def __init__(
        self,
        client: Client,
        origins: Origins,
        directory: Directory,
        policies: PolicyBook,
        listeners: Iterable[GrpcListener],
        *,
        clock: Clock,
        settings: RocketmqSettings | None = None,
        meter: TrafficMeter | None = None,
        memory: GatewayMemory | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        """Made on the event loop that will serve it; nothing is bound before `start`.

        Raises AuthError INVALID_ARGUMENT for a window on signed times that refuses real clients,
        ValueError for an advertised address that is none.
        """
        settings = settings or RocketmqSettings()
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._memory = memory or GatewayMemory(clock)
        self._wanted = tuple(listeners)
        self._advertised = {
            name: _advertised(name, address) for name, address in settings.advertised.items()
        }
        self._tasks = Tasks(self._loop)
        self._session = client.open_session("rocketmq", ORIGIN_BYTE)
        self._batches = SharedBatches(client, self._session, self._loop)
        self._polls = Polls(client, self._loop, self._tasks, settings.polls_max)
        self._environment = Environment(
            client=client,
            clock=clock,
            settings=settings,
            gate=_gate(directory, policies, settings),
            topics=Topics(client, settings, KeyedLock()),
            publisher=self._batches,
            receiver=self._polls,
            settler=SharedChanges(client, self._loop, self._tasks),
            clients=Clients(settings),
            producers=Producers(client),
            limiter=Limiter(self.name, quotas or Quotas(), client, clock),
            sleep=asyncio.sleep,
            figures_of={
                each.name: ListenerFigures(self.name, each.name, clock, REFUSALS)
                for each in self._wanted
            },
            meter=meter,
            calls=meter.calls(ACTIONS) if meter is not None else None,
        )
        turns = fair_scheduler_of(client, self._loop)
        self._service = Service(self._environment, FairCalls(turns, self._loop))
        self._streams = Streams(self._service, self._tasks)
        self._servers: dict[str, _GrpcServer] = {}
        self._relays: dict[str, Relay] = {}
        self._addresses: dict[str, tuple[str, int]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None
        register_origin(origins)

    # --- adapters.base.Adapter --------------------------------------------------------------

    async def start(self) -> None:
        """Bind every listener. Raises OSError if one cannot be bound; then none is."""
        try:
            for listener in self._wanted:
                await self._open(listener)
        except OSError:
            await self._close_servers(None)
            raise
        self._timer = self._loop.call_later(TICK_S, self._tick)

    def addresses(self) -> Mapping[str, tuple[str, int]]:
        """Listener name to the address bound."""
        return dict(self._addresses)

    def move(
        self, amount: int, to: Mapping[str, str], consumers_by_key: ConsumersByKey | None = None
    ) -> int:
        """Name the other gateway in the routes of clients, and have them connect anew: by
        `reconnect_endpoints` on their telemetry stream. Routes are asked for every 30 s.
        """
        return self._streams.move(amount, to, consumers_by_key)

    def holders(self) -> Iterable[Holder]:
        """See `adapters.base.Adapter`. Calls are signed each; what goes on are streams, polls and
        the renewal of leases.
        """
        return [*self._streams.holders(), *self._polls.holders(), self._environment.clients]

    def connections(self) -> Iterable[OpenConnection]:
        """See `adapters.base.Adapter`. A client's telemetry stream stands for its connection."""
        return self._streams.holders()

    async def drain(self) -> None:
        """Take no new call (GOAWAY), end polls and streams, return when all calls have ended."""
        for relay in self._relays.values():
            relay.close()
        closing = self._loop.create_task(self._close_servers(DRAIN_GRACE_S))
        self._polls.drain()
        self._streams.drain()
        await closing

    async def stop(self) -> None:
        """Close listeners and what calls are left, at once. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        await self._close_servers(None)
        self._batches.flush()
        await self._tasks.stop()
        self._session.close()

    def spells(self, topic: str) -> bool:
        """As a topic's name; as RocketMQ shows one of dead letters."""
        try:
            topic_name(shown_topic(topic), self._environment.settings)
        except RocketmqError:
            return False
        return True

    def statistics(self) -> AdapterStatistics:
        """Figures now. gRPC does not tell its connections: clients heard of stand for them."""
        environment = self._environment
        now_ms = environment.clock.monotonic_ms()
        counters = environment.counters
        figures = {name: getattr(counters, name) for name in counters.__slots__}
        figures["logins_refused"] = environment.gate.refused
        figures["revoked"] += environment.clients.revoked + self._polls.revoked
        figures["checks_not_asked"] = environment.producers.not_asked
        figures["leases_not_renewed"] = environment.clients.not_renewed
        figures["connections_refused"] = sum(each.refused for each in self._relays.values())
        return AdapterStatistics(
            connections=environment.clients.alive_count(now_ms),
            counters=figures,
            gauges={
                "polls": len(self._polls),
                "connections_relayed": sum(map(len, self._relays.values())),
                "streams_open": len(self._streams),
                "leases_renewed": environment.clients.renewal_count,
            },
            listeners=self._listener_figures(),
            staying=self._streams.staying(now_ms),
        )

    def _listener_figures(self) -> list[ListenerFigures]:
        for name, relay in self._relays.items():
            self._environment.figures_of[name].refused[CROWDED] = relay.refused
        return list(self._environment.figures_of.values())

    # --- Servers ----------------------------------------------------------------------------

    async def _open(self, wanted: GrpcListener) -> None:
        """Bind and serve one listener."""
        server: _GrpcServer = grpc.aio.server(options=_options(self._settings, wanted))
        if wanted.tls is not None and wanted.plain_too:
            port = await self._open_relay(wanted, server)
        else:
            port = _bind(server, wanted.host, wanted.port, _credentials(wanted))
        listener = Listener(
            wanted.name, place_of(wanted.host, port), self._advertised.get(wanted.name)
        )
        self._serve(server, listener, is_certified=wanted.client_authority is not None)
        await server.start()
        self._servers[wanted.name] = server
        self._addresses[wanted.name] = (wanted.host, port)

    async def _open_relay(self, wanted: GrpcListener, server: _GrpcServer) -> int:
        """Bind for clients with and without TLS; the port."""
        inside = "127.0.0.1"
        relay = Relay(
            _bind(server, inside, 0, None),
            _bind(server, inside, 0, _credentials(wanted)),
            self._settings.connections_max,
            self._memory.listener(self.name, wanted.name),
            self._environment.relayed,
        )
        self._relays[wanted.name] = relay
        return await relay.start(wanted.host, wanted.port, reuse_port=wanted.reuse_port)

    def _serve(self, server: _GrpcServer, listener: Listener, *, is_certified: bool) -> None:
        """Register every call of the service. `is_certified`: clients show a certificate."""
        calls = grpc_calls(
            SERVICE,
            self._service.unary_calls(listener),
            self._service.streaming_calls(listener),
            {"Telemetry": partial(self._streams.serve, listener=listener.name)},
            partial(self._service.refusal_of, listener=listener),
            is_certified=is_certified,
        )
        server.add_generic_rpc_handlers((calls,))

    async def _close_servers(self, grace_s: float | None) -> None:
        """Close each server: GOAWAY, then wait for its calls, `None`: end them at once."""
        servers = list(self._servers.values())
        self._addresses.clear()
        await asyncio.gather(*(server.stop(grace_s) for server in servers))
        self._servers.clear()
        await asyncio.gather(*(relay.stop() for relay in self._relays.values()))

    # --- Time -------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK_S, self._tick)
        self._memory.look()
        self._streams.tick(self._environment.clock.monotonic_ms())
        if self._renewing is not None and not self._renewing.done():
            # The disk is slow: what is due stays due.
            return
        due = self._environment.clients.tick(self._environment.clock.monotonic_ms())
        if due:
            self._renewing = self._tasks.start(self._service.change_leases(due))


def _gate(directory: Directory, policies: PolicyBook, settings: RocketmqSettings) -> Gate:
    def rights_of_login(login: str) -> Rights | None:
        principal = directory.principal(*split_login(login))
        return policies.access(principal) if principal is not None else None

    def rights_of(key: AccessKey) -> Rights | None:
        principal = directory.principal_of(key)
        return policies.access(principal) if principal is not None else None

    verifier = MqV2Verifier(
        directory.access_key, directory.secret_of, settings.sign_in, settings.sign_in_skew_ms_max
    )
    return Gate(
        verifier,
        settings.sign_in,
        directory.access_key,
        rights_of,
        rights_of_login,
        settings.namespaces,
    )


def _advertised(name: str, address: str) -> AnswerPlace:
    """The operator's word for a listener. Raises ValueError."""
    try:
        return place_named(address)
    except ValueError as error:
        message = f"the advertised address of listener {name} {error}"
        raise ValueError(message) from None


def _credentials(listener: GrpcListener) -> grpc.ServerCredentials | None:
    """What gRPC needs for TLS; None: it speaks without."""
    if listener.tls is None:
        return None
    authority = listener.client_authority

    def configured(pair: PemPair) -> grpc.ServerCertificateConfiguration:
        pairs = ((pair.private_key, pair.certificate),)
        return grpc.ssl_server_certificate_configuration(pairs, authority)

    shown, renewed = listener.tls, listener.renewed

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        """At each handshake, in a thread of gRPC's; None: the same as before."""
        nonlocal shown
        pair = shown if renewed is None else renewed()
        if pair is shown:
            return None
        shown = pair
        return configured(pair)

    return grpc.dynamic_ssl_server_credentials(configured(shown), fetch, authority is not None)


def _bind(
    server: _GrpcServer, host: str, port: int, credentials: grpc.ServerCredentials | None
) -> int:
    """Have gRPC listen; the port. `credentials`: None: without TLS. Raises OSError."""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise _reason(host, port, error) from None


def _reason(host: str, port: int, error: RuntimeError) -> OSError:
    """Why an address cannot be bound. gRPC does not say, so the system is asked once more."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as told:
        return told
    return OSError(f"cannot listen on {host}:{port}: {error}")


def _options(settings: RocketmqSettings, listener: GrpcListener) -> list[tuple[str, int]]:
    """Options of a gRPC server."""
    return [
        ("grpc.max_receive_message_length", settings.request_bytes_max),
        ("grpc.max_concurrent_streams", STREAMS_MAX),
        # What is sent is bounded by what was stored.
        ("grpc.max_send_message_length", -1),
        ("grpc.max_connection_idle_ms", settings.idle_timeout_ms),
        # Without the option two processes may bind one port unseen.
        ("grpc.so_reuseport", int(listener.reuse_port)),
        # Clients ping idle connections each 30 s or less; the default takes that for an attack.
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ]
