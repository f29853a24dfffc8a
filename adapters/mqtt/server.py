"""Sockets, the clock and tasks around `ClientConnection`, and the adapter as a whole.

It decides nothing. One timer ticks for all connections; their deadlines are in a timing wheel.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from adapters.base import AdapterStatistics
from adapters.connections import (
    DETAILS_MAX,
    ChannelShown,
    ConnectionShown,
    connected_user,
    id_of,
)
from adapters.fair_scheduler import fair_scheduler_of
from adapters.limiting import Limiter
from adapters.listener_figures import CROWDED, ListenerFigures
from adapters.memory import GatewayMemory
from adapters.moving import Moving
from adapters.mqtt.client_connection import ClientConnection
from adapters.mqtt.codec.topic_names import TopicNames
from adapters.mqtt.counters import Counters
from adapters.mqtt.delivery.system_topics import BrokerFigures, Connected
from adapters.mqtt.environment import Environment, MqttSettings
from adapters.mqtt.limits import DEADLINES_TOGETHER_MAX, TURN_BYTES, WHEEL_TICK_MS
from adapters.mqtt.messages.stored import NamesKnown, register_origin
from adapters.mqtt.reporting.closings import Closings
from adapters.mqtt.reporting.traffic import ConnectionTraffic, TrafficBook
from adapters.mqtt.subscriptions.live import LiveRouter
from adapters.mqtt.transport.websocket import WebSocket
from adapters.mqtt.transport.wheel import TimingWheel
from adapters.pauses import Pause, wait_s
from adapters.transport import Listeners, StreamProtocol, Tasks
from kernel.quotas.accounts import Quotas

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from adapters.base import ListenerAddress, TrafficMeter
    from adapters.moving import ConsumersByKey
    from adapters.mqtt.delivery.system_topics import Tenant
    from adapters.mqtt.environment import MqttSignIn
    from kernel.api.client import Client
    from kernel.api.tracing import ConnectedUser
    from kernel.common.ports import Clock, Random

WEBSOCKET_LISTENER: Final = "websocket"
"""Name of the listener whose connections begin as HTTP; on the others MQTT comes at once."""

LOOK_MS: Final = 10_000
"""A connection is looked at so often, however far its deadline: its octets are counted."""

FINISH_S: Final = 5.0
"""How long `stop` waits for the last notes and wills to be on disk; a sync takes milliseconds."""

_log = structlog.get_logger("weir.mqtt")


class MqttProtocol(StreamProtocol):
    """One TCP or TLS connection. `adapters.mqtt.host.Host` of its driver."""

    __slots__ = (
        "_adapter",
        "_counted",
        "_is_limited",
        "_later",
        "_pause",
        "_tenant",
        "_traffic",
        "client",
        "holds_deliveries",
        "listener",
    )

    def __init__(self, adapter: MqttAdapter, listener: str) -> None:
        super().__init__(
            adapter.loop, adapter.memory_of[listener], adapter.turns, adapter.figures_of[listener]
        )
        self.listener = listener
        self._adapter = adapter
        self._traffic: ConnectionTraffic | None = None
        self._tenant: Tenant | None = None
        self._counted = (0, 0)
        self._later = b""
        """What came in one read and has its turn later: no more than that one read."""
        self._pause: Pause | None = None
        self._is_limited = False
        """Whether it gets nothing because of a limit."""
        self.holds_deliveries = False
        self.client = ClientConnection(adapter.environment, self)

    # --- StreamProtocol ---------------------------------------------------------------------

    def opened(self) -> None:
        self.read_little()
        self._adapter.entered(self)

    def received(self, data: bytes) -> None:
        if self._later:
            self._later += data
        elif self._tenant is None:
            # What ten thousand begin with one CONNECT each takes seconds.
            self._later = data
            self.hold_input(self.unfinished_bytes)
            self.take_turn()
        elif len(data) <= (
            most := self._most_bytes(len(data))
        ) or self.client.session.missing_bytes >= len(data):
            self.take(data)
        else:
            self._later = data[most:]
            self.take_turn()
            self.take(data[:most])

    # --- adapters.connections.OpenConnection ------------------------------------------------

    @property
    def owner(self) -> tuple[str, str]:
        return self.client.owner

    def shown(self) -> ConnectionShown:
        client = self.client
        tenant, user = client.owner
        limited = "a limit" if self.is_paused or self._is_limited else ""
        return ConnectionShown(
            id=id_of("mqtt", self.number),
            protocol="mqtt",
            listener=self.listener,
            peer=self.peer,
            ssl=self.is_secret,
            tenant=tenant,
            user=user,
            client_id=client.client_id,
            client="bridge" if client.is_bridge else "",
            state=client.session.state.name.lower(),
            waits_for=", ".join(filter(None, (self.waits_for, limited))),
            connected_s=self.loop.time() - self.opened_s,
            channels=int(client.is_connected),
            consumers=client.subscription_count,
            messages_unacknowledged=client.session.in_flight_count,
            recv_oct=self.bytes_in,
            send_oct=self.bytes_out,
        )

    def channels_shown(self) -> Iterator[ChannelShown]:
        client = self.client
        if client.is_connected:
            yield ChannelShown(
                number=1,
                state="open",
                confirm=True,
                transactional=False,
                prefetch_count=client.session.delivery_window,
                messages_unacknowledged=client.session.in_flight_count,
                consumers=client.subscriptions_shown(DETAILS_MAX),
            )

    def end(self, reason: str) -> None:
        self.client.end(reason)

    def connected_user(self) -> ConnectedUser:
        return connected_user("mqtt", self.owner, self.peer, self.number)

    def _most_bytes(self, read_bytes: int) -> int:
        """How much of what was read is taken in one turn."""
        return min(TURN_BYTES, self.client.piece_bytes(read_bytes) or TURN_BYTES)

    def read_on(self) -> None:
        """See `read_scheduler.Reading`: what was read before comes first, a part in each turn."""
        if self.is_paused:
            # Its turn comes again when nothing is owed.
            super().read_on()
            return
        most = self._most_bytes(len(self._later))
        part, self._later = self._later[:most], self._later[most:]
        super().read_on()
        if self._later:
            self.take_turn()
        if part and not self.client.session.is_over:
            self.take(part)

    @property
    def is_paused(self) -> bool:
        """See `Host`."""
        return self._pause is not None and self._pause.is_on

    def pause(self, delay_ms: int) -> None:
        """See `Host`."""
        if self._pause is None:
            self._pause = Pause(self, self.loop.call_later, self._after_pause, self.client.leave)
        self._pause.begin(delay_ms)

    def _after_pause(self) -> int:
        delay_ms = self.client.owes_ms()
        if self._later and not delay_ms:
            self.take_turn()
        return delay_ms

    def take(self, data: bytes) -> None:
        """What one turn brings."""
        try:
            self.client.receive(data)
        except Exception:  # noqa: BLE001 - a bug: logged, and an answer instead of silence
            _log.exception("internal error", peer=self.peer)
            self.client.fail_internally()
        self.input_held()

    @property
    def unfinished_bytes(self) -> int:
        """Of a packet that is not whole, of what waits for a decision about CONNECT or for a limit,
        and of what has its turn later.
        """
        client = self.client
        return client.session.unfinished_bytes + len(self._later) + client.kept_bytes

    def input_held(self) -> None:
        """See `Host`."""
        unfinished = self.unfinished_bytes
        if unfinished or self.has_input:
            self.hold_input(unfinished)

    def refuse_input(self) -> None:
        self._later = b""
        self.client.refuse_memory()

    def refuse_output(self) -> None:
        if not self.is_writing_paused:
            self.client.refuse_memory()
        self.abort()

    def backlog_bytes(self) -> int:
        return self.client.backlog_bytes

    def deadline_moved(self) -> None:
        """See `Host`."""
        self._adapter.look_at(self.client, self.client.session.deadline_ms)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop, once: what came before the end counts, also if its turn has not
        come yet.
        """
        later, self._later = self._later + self.take_untaken(), b""
        if later and not self.client.session.is_over:
            self.take(later)
        super().connection_lost(exc)

    def turn_ending(self) -> None:
        data = self.client.session.data_to_send()
        if data:
            self.out.append(data)

    def writing_paused(self) -> None:
        self.holds_deliveries = True

    def writing_resumed(self) -> None:
        self.holds_deliveries = self._is_limited
        if not self._is_limited:
            self.client.writing_resumed()

    def hold_deliveries(self, delay_ms: int) -> None:
        """See `Host`."""
        if not self._is_limited:
            self._is_limited = self.holds_deliveries = True
            self.loop.call_later(wait_s(delay_ms), self._deliver_again)

    def _deliver_again(self) -> None:
        delay_ms = self.client.delivery_owes_ms()
        if delay_ms:
            self.loop.call_later(wait_s(delay_ms), self._deliver_again)
            return
        self._is_limited = False
        self.holds_deliveries = self.is_writing_paused
        if not self.is_writing_paused:
            self.client.writing_resumed()

    def signed_in(self, tenant: str) -> None:
        """See `Host`."""
        meter = self._adapter.environment.traffic.meter
        if meter is not None and self._traffic is None:
            self._traffic = ConnectionTraffic(meter, tenant)
        self._tenant = self._adapter.environment.figures.of(tenant)
        self._adapter.known(self)
        self.read_much()
        self.shares_as(tenant)

    def count_octets(self) -> None:
        """See `Host`; called about every ten seconds."""
        if self._traffic is not None:
            self._traffic.count(self.bytes_in, self.bytes_out)
        if self._tenant is not None:
            came, went = self._counted
            self._counted = (self.bytes_in, self.bytes_out)
            self._tenant.octets(self.bytes_in - came, self.bytes_out - went)

    def closed(self, error: Exception | None) -> None:
        self.count_octets()
        if self._traffic is not None:
            self._traffic.close()
        self._adapter.left(self)
        self.client.lost()


class WebSocketProtocol(MqttProtocol):
    """One WebSocket connection: the same bytes, in frames (MQTT5 chapter 6)."""

    __slots__ = ("_socket",)

    def __init__(self, adapter: MqttAdapter, listener: str) -> None:
        super().__init__(adapter, listener)
        self._socket = WebSocket()

    def take(self, data: bytes) -> None:
        for part in self._socket.receive(data):
            super().take(part)
        self._after()
        if self._socket.handshake_bytes:
            self.hold_input(self.unfinished_bytes)

    @property
    def unfinished_bytes(self) -> int:
        """Of the handshake or a packet that is not whole."""
        return self._socket.handshake_bytes + super().unfinished_bytes

    def turn_ending(self) -> None:
        data = self.client.session.data_to_send()
        if data:
            self._socket.send(data)
        framed = self._socket.data_to_send()
        if framed:
            self.out.append(framed)

    def _after(self) -> None:
        if self._socket.is_over:
            self.client.lost()
            super().close()
        else:
            self.write_soon()

    def close(self) -> None:
        """See `Host.close`: MQTT's goodbye, then the WebSocket's."""
        data = self.client.session.data_to_send()
        if data:
            self._socket.send(data)
        self._socket.close()
        super().close()


class MqttAdapter:
    """MQTT 3.1.1 and 5, served. `adapters.base.Adapter`."""

    name = "mqtt"

    def __init__(
        self,
        client: Client,
        sign_in: MqttSignIn,
        listeners: Iterable[ListenerAddress],
        *,
        clock: Clock,
        random: Random,
        settings: MqttSettings | None = None,
        meter: TrafficMeter | None = None,
        version: str = "",
        memory: GatewayMemory | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        """Made on the event loop that will serve it; nothing is bound before `start`."""
        self.loop = asyncio.get_running_loop()
        listeners = tuple(listeners)
        self._memory = memory or GatewayMemory(clock)
        self.memory_of = {
            each.name: self._memory.listener(self.name, each.name) for each in listeners
        }
        self.figures_of = {
            each.name: ListenerFigures(self.name, each.name, clock, (CROWDED,))
            for each in listeners
        }
        self.turns = fair_scheduler_of(client, self.loop)
        self._tasks = Tasks(self.loop)
        self._clock = clock
        register_origin(client.origins)
        settings = settings or MqttSettings()
        listeners = list(listeners)
        self.environment = Environment(
            client=client,
            tree=client.tree,
            sign_in=sign_in,
            clock=clock,
            random=random,
            settings=settings,
            names=TopicNames(settings.session.topic_levels_max),
            known=NamesKnown(),
            live=LiveRouter(client.tree, client.origins, clock, self._soon),
            counters=Counters(),
            figures=BrokerFigures(clock, version, self._soon, self._connected),
            traffic=TrafficBook(meter),
            closings=Closings(clock, [each.name for each in listeners]),
            limiter=Limiter(self.name, quotas or Quotas(), client, clock),
            run=self._tasks.start,
            soon=self._soon,
        )
        self._listeners: Listeners[MqttProtocol] = Listeners(
            self.loop, listeners, self._protocol, self.memory_of, settings.connections_max
        )
        self._moving: Moving[MqttProtocol] = Moving(
            lambda each: each.client.identity, lambda each: each.client.client_id
        )
        self._wheel: TimingWheel[ClientConnection] = TimingWheel(
            WHEEL_TICK_MS, clock.monotonic_ms()
        )
        self._timer: asyncio.TimerHandle | None = None

    def _protocol(self, listener: ListenerAddress) -> MqttProtocol:
        if listener.name == WEBSOCKET_LISTENER:
            return WebSocketProtocol(self, listener.name)
        return MqttProtocol(self, listener.name)

    def _soon(self, action: Callable[[], None]) -> None:
        self.loop.call_soon(action)

    # --- adapters.base.Adapter --------------------------------------------------------------

    async def start(self) -> None:
        """Bind every listener. Raises OSError if one cannot be bound; then none is."""
        await self._listeners.start()
        self._timer = self.loop.call_later(WHEEL_TICK_MS / 1000, self._tick)

    def addresses(self) -> Mapping[str, tuple[str, int]]:
        """Listener name to the address bound."""
        return self._listeners.addresses()

    def move(
        self, amount: int, to: Mapping[str, str], consumers_by_key: ConsumersByKey | None = None
    ) -> int:
        """DISCONNECT 0x9C with a Server Reference (MQTT5 4.11); a client of 3.1.1 sees its
        connection close.
        """
        movable = [each for each in self._listeners.connections if each.client.is_connected]
        moved = 0
        now_ms = self._clock.monotonic_ms()
        for protocol in self._moving.chosen(
            movable, amount, consumers_by_key, lambda each: each.client.consumer_key, now_ms
        ):
            protocol.client.send_elsewhere(to.get(protocol.listener))
            protocol.close()
            moved += 1
        return moved

    def holders(self) -> Iterable[ClientConnection]:
        """See `adapters.base.Adapter`."""
        return [each.client for each in self._listeners.connections]

    def connections(self) -> Iterable[MqttProtocol]:
        """See `adapters.base.Adapter`."""
        return list(self._listeners.connections)

    async def drain(self) -> None:
        """Take no new connection; tell every client that the server shuts down, and close."""
        await self._listeners.stop_accepting()
        for protocol in list(self._listeners.connections):
            protocol.client.shut_down()
            protocol.close()
        await self._listeners.wait_until_empty()
        await self._tasks.finish(FINISH_S)

    async def stop(self) -> None:
        """Close listeners and what connections are left, at once. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        await self._listeners.stop_accepting()
        self._listeners.abort_all()
        await self._listeners.wait_until_empty()
        await self._tasks.finish(FINISH_S)
        await self._tasks.stop()

    def spells(self, topic: str) -> bool:
        """As a topic name (MQTT5 4.7.1): a client may publish to it."""
        return not {"+", "#"} & set(topic)

    def statistics(self) -> AdapterStatistics:
        """Figures now."""
        connections = self._listeners.connections
        return AdapterStatistics(
            connections=len(connections),
            counters=self.environment.figures.totals(self.environment.counters),
            refused=self.environment.closings.counts,
            listeners=list(self.figures_of.values()),
            gauges={
                "subscriptions": sum(each.client.subscription_count for each in connections),
                "live_patterns": self.environment.live.pattern_count,
                "live_waiting_bytes": self.environment.live.waiting_bytes,
            },
            staying=self._moving.staying(),
        )

    def _connected(self) -> Connected:
        """What every connection is, for who reads figures of it."""
        seen = Connected()
        for protocol in self._listeners.connections:
            client = protocol.client
            if client.tenant is not None and client.is_connected:
                seen.saw(
                    client.tenant,
                    client.client_id,
                    subscriptions=client.subscription_count,
                    in_flight=client.session.in_flight_count,
                    is_bridge=client.is_bridge,
                )
        return seen

    # --- Connections ------------------------------------------------------------------------

    def entered(self, protocol: MqttProtocol) -> None:
        """A connection has opened."""
        counters = self.environment.counters
        out = self._listeners.entered(protocol)
        if out is not None:
            counters.connections_refused += 1
            out.figures.refuse(CROWDED)
            out.abort()
        if out is protocol:
            return
        counters.connections += 1
        self.look_at(protocol.client, protocol.client.session.deadline_ms)

    def known(self, protocol: MqttProtocol) -> None:
        """It has signed in."""
        self._listeners.known(protocol)
        protocol.figures.signed_in(protocol)

    def left(self, protocol: MqttProtocol) -> None:
        """A connection has closed."""
        self._wheel.remove(protocol.client)
        self._listeners.left(protocol)

    def look_at(self, client: ClientConnection, deadline_ms: int | None) -> None:
        """Have a connection looked at when its deadline has passed."""
        latest_ms = self._clock.monotonic_ms() + LOOK_MS
        self._wheel.put(client, latest_ms if deadline_ms is None else min(deadline_ms, latest_ms))

    def _tick(self) -> None:
        self._timer = self.loop.call_later(WHEEL_TICK_MS / 1000, self._tick)
        self._memory.look()
        now_ms = self._clock.monotonic_ms()
        self.environment.figures.tick()
        self._check(list(self._wheel.due(now_ms)))

    def _check(self, due: list[ClientConnection]) -> None:
        """Of very many, some in each turn: ten thousand may be late at once."""
        now_ms = self._clock.monotonic_ms()
        for client in due[-DEADLINES_TOGETHER_MAX:]:
            if client.session.is_over:
                continue
            deadline_ms = client.check_deadline(now_ms)
            if not client.session.is_over:
                self.look_at(client, deadline_ms)
        del due[-DEADLINES_TOGETHER_MAX:]
        if due:
            self.loop.call_soon(self._check, due)
