"""The driver: sockets, the clock and tasks around `Connection`, and the adapter as a whole.

It decides nothing. Bytes go to the state machine and come from it; what must be awaited runs as a
task that ends with its connection; one timer ticks for all connections.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from adapters.amqp import figures
from adapters.amqp.channel.revoking import recheck
from adapters.amqp.connection.state_machine import Connection
from adapters.amqp.environment import Counters, Environment
from adapters.amqp.errors import CONNECTION_FORCED, REFUSALS, RESOURCE_ERROR, AmqpError
from adapters.amqp.handshake import AmqpSettings
from adapters.amqp.lifecycle import ConnectionState
from adapters.amqp.limits import SHORT_STRING_BYTES_MAX
from adapters.amqp.messages.stamps import Stamps
from adapters.amqp.messages.stored import register_origin
from adapters.amqp.topology.declaring import Declarations
from adapters.base import ListenerAddress
from adapters.connections import connected_user
from adapters.fair_scheduler import fair_scheduler_of
from adapters.limiting import Limiter
from adapters.listener_figures import CROWDED, ListenerFigures
from adapters.memory import GatewayMemory
from adapters.moving import Moving
from adapters.pauses import Pause, wait_s
from adapters.transport import Listeners, StreamProtocol, Tasks
from kernel.quotas.accounts import Quotas

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping

    from adapters.base import AdapterStatistics, SignIn, TrafficCounter, TrafficMeter
    from adapters.connections import ChannelShown, ConnectionShown
    from adapters.moving import ConsumersByKey
    from kernel.api.client import Client
    from kernel.api.origins import Origins
    from kernel.api.tracing import ConnectedUser
    from kernel.common.ids import SessionId
    from kernel.common.ports import Clock, Random

TICK_S: Final = 1.0
"""How often deadlines, heartbeats and alarms are looked at; heartbeat intervals are seconds."""

DRAIN_REASON: Final = "the broker is shutting down"
MOVE_REASON: Final = "this gateway hands clients over to another"

_log = structlog.get_logger("weir.amqp")


class AmqpProtocol(StreamProtocol):
    """One socket. `adapters.amqp.environment.Host` of its connection."""

    def __init__(self, adapter: AmqpAdapter, listener: ListenerAddress) -> None:
        super().__init__(
            asyncio.get_running_loop(),
            adapter.memory_of[listener.name],
            adapter.turns,
            adapter.figures_of[listener.name],
        )
        self._adapter = adapter
        self._clock = adapter.clock
        self.listener = listener
        self.is_moving = False
        """Whether its client has been asked to go elsewhere."""
        self.listener_name = listener.name
        self._pause: Pause | None = None
        self.connection = Connection(adapter.environment, self)
        self.tenant = ""
        self._task: asyncio.Task[None] | None = None
        self._address = ""
        self._octets: TrafficCounter | None = None
        self._octets_counted = (0, 0)

    # --- StreamProtocol ---------------------------------------------------------------------

    @property
    def client_name(self) -> str:
        """Who it is, the same when it connects anew."""
        rights = self.connection.rights
        user = rights.principal.name if rights is not None else ""
        return f"{user}@{self._address.rpartition(':')[0]}"

    @property
    def consumer_key(self) -> SessionId | None:
        """Whose its consumers are; None: it has none."""
        session = self.connection.session
        return session.id if session is not None else None

    def opened(self) -> None:
        self._address = super().peer
        self._adapter.entered(self)

    def received(self, data: bytes) -> None:
        try:
            self.connection.receive(data)
        except Exception:  # noqa: BLE001 - a bug: logged, and 541 instead of a mute disconnect
            self._fail("received")
        unfinished = self.connection.reader.unfinished_bytes
        if unfinished or self.has_input:
            self.hold_input(unfinished)

    @property
    def unfinished_bytes(self) -> int:
        return self.connection.reader.unfinished_bytes

    def refuse_input(self) -> None:
        text = "frames and messages that are not whole take too much of the server's memory"
        self.connection.fail(0, AmqpError(RESOURCE_ERROR, text))
        self.connection.reader.end()

    def turn_ending(self) -> None:
        self.connection.finish_turn()

    def writing_paused(self) -> None:
        self.connection.writing_paused(is_paused=True)

    def writing_resumed(self) -> None:
        self.connection.writing_paused(is_paused=False)

    def closed(self, error: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()
        self.connection.lost()
        self.count_octets()
        if self._octets is not None and self._adapter.environment.meter is not None:
            self._adapter.environment.meter.connection_closed(self.tenant)
        self._adapter.left(self)
        _log.info(
            "connection closed",
            peer=self._address,
            name=self.connection.features.name,
            login=self.connection.login,
            reason=self.connection.reason,
            error=str(error) if error is not None else None,
        )

    def recheck(self) -> Iterator[None]:
        """See `adapters.base.Holder`."""
        return recheck(self.connection, self._adapter.environment.counters)

    # --- adapters.connections.OpenConnection ------------------------------------------------

    @property
    def owner(self) -> tuple[str, str]:
        rights = self.connection.rights
        return ("", "") if rights is None else (rights.principal.tenant, rights.principal.name)

    def shown(self) -> ConnectionShown:
        return figures.shown_connection(self, self.connection, self.listener)

    def channels_shown(self) -> Iterator[ChannelShown]:
        return figures.channels_of(self.connection)

    def end(self, reason: str) -> None:
        self.connection.fail(0, AmqpError(CONNECTION_FORCED, reason))

    def count_octets(self) -> None:
        """Count what came and went since the last time, for the tenant; about once a second."""
        meter = self._adapter.environment.meter
        if meter is None or not self.tenant:
            return
        if self._octets is None:
            self._octets = meter.octet_counter(self.tenant)
            meter.connection_opened(self.tenant)
        before, now = self._octets_counted, (self.bytes_in, self.bytes_out)
        if now != before:
            self._octets_counted = now
            self._octets.octets(now[0] - before[0], now[1] - before[1])

    def connected_user(self) -> ConnectedUser:
        """See `Host`."""
        return connected_user("amqp", self.owner, self.peer, self.number)

    def signed_in(self, tenant: str) -> None:
        """See `Host`."""
        self.tenant = tenant
        self._adapter.known(self)
        self.shares_as(tenant)

    # --- Host -------------------------------------------------------------------------------

    @property
    def peer(self) -> str:
        return self._address

    def close(self, reason: str = "") -> None:
        """Write what is there and close; the reason is logged when the transport is gone."""
        del reason
        super().close()

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()

    def pause(self, delay_ms: int) -> None:
        """See `Host`."""
        if self._pause is None:
            connection = self.connection
            self._pause = Pause(self, self.loop.call_later, connection.go_on, connection.leave)
        self._pause.begin(delay_ms)

    async def rest(self, delay_ms: int) -> None:
        """See `Host`."""
        await asyncio.sleep(wait_s(delay_ms))

    def deliver_later(self, delay_ms: int) -> None:
        """See `Host`."""
        self.loop.call_later(wait_s(delay_ms), self.connection.deliver_again)

    def run(self, operation: Callable[[], Coroutine[object, object, None]]) -> None:
        """See `Host.run`."""
        self._task = self._adapter.tasks.start(self._run(operation))

    async def _run(self, operation: Callable[[], Coroutine[object, object, None]]) -> None:
        try:
            await operation()
            self._task = None
            self.connection.resume()
        except Exception:  # noqa: BLE001 - as above
            self._fail("operation")

    def _fail(self, where: str) -> None:
        _log.exception("internal error", where=where, peer=self._address)
        self.connection.fail_internally()


class AmqpAdapter:
    """AMQP 0-9-1, served. `adapters.base.Adapter`."""

    name = "amqp"

    def __init__(
        self,
        client: Client,
        origins: Origins,
        sign_in: SignIn,
        listeners: Iterable[ListenerAddress],
        *,
        clock: Clock,
        random: Random,
        settings: AmqpSettings | None = None,
        meter: TrafficMeter | None = None,
        memory: GatewayMemory | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        """Made on the event loop that will serve it; nothing is bound before `start`."""
        self._client = client
        self.clock = clock
        listeners = tuple(listeners)
        self._memory = memory or GatewayMemory(clock)
        self.memory_of = {
            each.name: self._memory.listener(self.name, each.name) for each in listeners
        }
        self.figures_of = {
            each.name: ListenerFigures(self.name, each.name, clock, REFUSALS) for each in listeners
        }
        self._loop = asyncio.get_running_loop()
        self.turns = fair_scheduler_of(client, self._loop)
        self.tasks = Tasks(self._loop)
        self.environment = Environment(
            client=client,
            origins=origins,
            declarations=Declarations(client, random),
            sign_in=sign_in,
            random=random,
            settings=settings or AmqpSettings(),
            stamps=Stamps(),
            counters=Counters(),
            limiter=Limiter(self.name, quotas or Quotas(), client, clock),
            meter=meter,
        )
        register_origin(origins)
        self._listeners: Listeners[AmqpProtocol] = Listeners(
            self._loop,
            listeners,
            lambda listener: AmqpProtocol(self, listener),
            self.memory_of,
            self.environment.settings.connections_max,
        )
        self._moving: Moving[AmqpProtocol] = Moving(
            lambda each: each.client_name, lambda each: each.client_name
        )
        self._timer: asyncio.TimerHandle | None = None
        self._was_accepting = True

    # --- adapters.base.Adapter --------------------------------------------------------------

    async def start(self) -> None:
        """Bind every listener. Raises OSError if one cannot be bound; then none is."""
        await self._listeners.start()
        self._timer = self._loop.call_later(TICK_S, self._tick)

    def addresses(self) -> Mapping[str, tuple[str, int]]:
        """Listener name to the address bound."""
        return self._listeners.addresses()

    def move(
        self, amount: int, to: Mapping[str, str], consumers_by_key: ConsumersByKey | None = None
    ) -> int:
        """Close connections with 320, once what they published is answered: clients open another
        then, by their own list of hosts or through the balancer they came by.
        """
        movable = [
            each
            for each in self._listeners.connections
            if each.connection.state is ConnectionState.OPEN and not each.is_moving
        ]
        moved = 0
        now_ms = self.clock.monotonic_ms()
        for protocol in self._moving.chosen(
            movable, amount, consumers_by_key, lambda each: each.consumer_key, now_ms
        ):
            protocol.is_moving = True
            place = to.get(protocol.listener.name)
            where = f": {place} has room" if place else ""
            protocol.connection.shut_down(MOVE_REASON + where)
            moved += 1
        return moved

    def holders(self) -> Iterable[AmqpProtocol]:
        """See `adapters.base.Adapter`."""
        return list(self._listeners.connections)

    def connections(self) -> Iterable[AmqpProtocol]:
        """See `adapters.base.Adapter`."""
        return list(self._listeners.connections)

    async def drain(self) -> None:
        """Take no new connection; close each once what it published is answered."""
        await self._listeners.stop_accepting()
        for protocol in list(self._listeners.connections):
            protocol.connection.shut_down(DRAIN_REASON)
        await self._listeners.wait_until_empty()

    async def stop(self) -> None:
        """Close listeners and what connections are left, at once. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        await self._listeners.stop_accepting()
        self._listeners.abort_all()
        await self._listeners.wait_until_empty()
        await self.tasks.stop()

    def spells(self, topic: str) -> bool:
        """Whatever a short string holds."""
        return len(topic.encode()) <= SHORT_STRING_BYTES_MAX

    def statistics(self) -> AdapterStatistics:
        """Figures now."""
        connections = [protocol.connection for protocol in self._listeners.connections]
        return figures.of_adapter(
            connections,
            self.environment.counters,
            list(self.figures_of.values()),
            self._moving.staying(),
        )

    # --- Connections ------------------------------------------------------------------------

    def entered(self, protocol: AmqpProtocol) -> None:
        """A connection has opened."""
        counters = self.environment.counters
        out = self._listeners.entered(protocol)
        if out is not None:
            counters.connections_refused += 1
            out.figures.refuse(CROWDED)
            out.connection.reason = "there are too many connections (connections_max)"
            out.abort()
        counters.connections += out is not protocol

    def known(self, protocol: AmqpProtocol) -> None:
        """It has signed in."""
        self._listeners.known(protocol)
        protocol.figures.signed_in(protocol)

    def left(self, protocol: AmqpProtocol) -> None:
        """A connection has closed."""
        self._listeners.left(protocol)

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK_S, self._tick)
        self._memory.look()
        now_ms = self.clock.monotonic_ms()
        accepting = self._client.accepting
        changed = accepting != self._was_accepting
        self._was_accepting = accepting
        for protocol in list(self._listeners.connections):
            if changed and accepting:
                protocol.connection.unblock()
            elif changed:
                protocol.connection.block()
            protocol.connection.tick(now_ms)
            protocol.count_octets()
