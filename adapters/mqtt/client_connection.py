"""The driver of one connection: what the session machine decides meets the kernel.

    bytes → Session → events → here → kernel
    kernel's answers → here → Session → bytes

It owns the parts that a connection has: `SessionPublisher`, `Inbox`, `Requests` and
`StoredDeliveries`, each made when it is first needed, so that an idle connection costs little. A
connection has no task of its own; CONNECT, SUBSCRIBE, UNSUBSCRIBE and the end run as short ones.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

import structlog

from adapters.connections import ConsumerShown
from adapters.limiting import Charging, Delivering
from adapters.mqtt.access.refusals import reason_of, sign_in_reason
from adapters.mqtt.access.rights import USE_CLIENT, may_have
from adapters.mqtt.codec.errors import LocalProtocolError
from adapters.mqtt.codec.packet_types import MQTT_3_1_1, MQTT_5
from adapters.mqtt.codec.packets import PublishRun
from adapters.mqtt.codec.reason_codes import ReasonCode
from adapters.mqtt.delivery import notes
from adapters.mqtt.delivery.inbox import LIVE_TOKEN, Inbox
from adapters.mqtt.delivery.session_deliveries import StoredDeliveries
from adapters.mqtt.delivery.system_topics import state_of
from adapters.mqtt.environment import Login
from adapters.mqtt.limits import SESSION_EXPIRY_NEVER
from adapters.mqtt.messages.stored import publisher_hash, will_slot
from adapters.mqtt.origin import ORIGIN_BYTE
from adapters.mqtt.requests.publishing import PUBLISH_TREE, SessionPublisher
from adapters.mqtt.requests.subscribe import Requests
from adapters.mqtt.session.client_ids import subscriber_name
from adapters.mqtt.session.client_session import Session
from adapters.mqtt.session.events import (
    AuthenticationReceived,
    ConnectionClosed,
    ConnectReceived,
    DeliveriesCompleted,
    DeliveriesReceived,
    Event,
    PublishesReleased,
)
from adapters.mqtt.session.handshake import Welcome
from adapters.mqtt.session.states import ConnectionState
from auth.errors import AuthError
from auth.principal import PrincipalKind
from kernel.api.tree import SubscriberSpec, Will
from kernel.common.errors import Code, KernelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from adapters.base import Rights
    from adapters.mqtt.codec.packets import Connect
    from adapters.mqtt.codec.packets import Will as GivenWill
    from adapters.mqtt.delivery.system_topics import Tenant
    from adapters.mqtt.environment import Environment
    from adapters.mqtt.host import MqttHost
    from kernel.api.client import Session as KernelSession
    from kernel.api.tree import Subscriber
    from kernel.common.ids import SessionId
    from kernel.quotas.account import Account

ASSIGNED_ID_PREFIX: Final = "weir-"
_ASSIGNED_ID_BITS: Final = 96
_HOLD: Final = "session"

_log = structlog.get_logger("weir.mqtt")


def expiry_ms(expiry_s: int) -> int | None:
    """A session expiry interval as the kernel has it; None: never."""
    return None if expiry_s == SESSION_EXPIRY_NEVER else expiry_s * 1000


class ClientConnection:
    """One connection. `kernel.api.tree.SubscriberSink`."""

    __slots__ = (
        "__weakref__",
        "_charging",
        "_chose_id",
        "_client_id",
        "_counted",
        "_counted_by",
        "_env",
        "_host",
        "_inbox",
        "_is_closed",
        "_kernel_session",
        "_persistent",
        "_publisher",
        "_requests",
        "_rights",
        "_stored",
        "_subscriber",
        "is_bridge",
        "session",
        "wheel_tick",
    )

    def __init__(self, env: Environment, host: MqttHost) -> None:
        self._env = env
        self._host = host
        self.session = Session(env.settings.session, env.names, env.clock.monotonic_ms())
        self.wheel_tick = 0
        self._client_id = ""
        self._charging: Charging | None = None
        """What it is limited by, once that is known."""
        self._counted_by: Account | None = None
        """Which counts the connection."""
        self._chose_id = False
        """Whether the client has brought its identifier, which takes a right."""
        self._is_closed = False
        self._counted: Tenant | None = None
        self.is_bridge = False
        """Whether it says that it carries messages between brokers."""
        self._persistent = False
        self._rights: Rights | None = None
        self._subscriber: Subscriber | None = None
        self._kernel_session: KernelSession | None = None
        self._inbox: Inbox | None = None
        self._publisher: SessionPublisher | None = None
        self._requests: Requests | None = None
        self._stored: StoredDeliveries | None = None

    @property
    def client_id(self) -> str:
        """As the client or the server has chosen it; empty before CONNECT."""
        return self._client_id

    @property
    def identity(self) -> tuple[str, str]:
        """Tenant and client id: the same when it connects anew."""
        tenant = self._rights.principal.tenant if self._rights is not None else ""
        return tenant, self._client_id

    @property
    def tenant(self) -> str | None:
        """Whose it is, once it was let in."""
        return self._rights.principal.tenant if self._rights is not None else None

    @property
    def subscription_count(self) -> int:
        return len(self._inbox.subscriptions) if self._inbox is not None else 0

    @property
    def backlog_bytes(self) -> int:
        """Of messages that wait until the client takes them."""
        live = self._inbox.backlog_bytes if self._inbox is not None else 0
        return live + (self._stored.waiting_bytes if self._stored is not None else 0)

    # --- Bytes, time and the transport ------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """The client sent these bytes."""
        now_ms = self._env.clock.monotonic_ms()
        token = self.session.receive_puback(data, now_ms)
        if token is None:
            self._handle(self.session.receive_data(data, now_ms))
        elif token == LIVE_TOKEN and self._inbox is not None:
            self._inbox.drain()
        else:
            self._completed(DeliveriesCompleted([token]))

    def _handle(self, events: Sequence[Event]) -> None:
        if self._inbox is not None and self.session.is_over:
            self._inbox.stop()
        for event in events:
            self._on_event(event)
        if self.session.has_output:
            self._host.write_soon()
        if self._charging is not None:
            self._wait_for_limits(self._charging)
        self._update_reading()

    # --- Limits -----------------------------------------------------------------------------

    def piece_bytes(self, read_bytes: int) -> int:
        """How much of what was read may be taken before the limits are asked; 0: all of it."""
        return self._charging.piece(read_bytes) if self._charging is not None else 0

    def owes_ms(self) -> int:
        """For how long nothing more is to be read. What it could not say meanwhile is not late."""
        if self._charging is None or self.session.is_over:
            return 0
        self.session.reading_resumed(self._env.clock.monotonic_ms())
        if self._publisher is not None:
            self._publisher.submit_kept()
        return self._charging.owes_ms()

    def leave(self) -> None:
        """Its client has left, and is not waited for any longer."""
        if self._charging is not None:
            self._charging.leave()

    @property
    def kept_bytes(self) -> int:
        """Of messages that wait for a limit."""
        return self._charging.kept_bytes if self._charging is not None else 0

    def delivery_owes_ms(self) -> int:
        """For how long nothing more is to be delivered."""
        inbox = self._inbox
        return 0 if inbox is None or self.session.is_over else inbox.delivering.delay_ms()

    def _wait_for_limits(self, charging: Charging) -> None:
        delay_ms = charging.take_delay_ms()
        if delay_ms and not self.session.is_over:
            self._host.pause(delay_ms)

    def _charged_later(self) -> None:
        if self._charging is not None:
            self._wait_for_limits(self._charging)
            self._host.input_held()

    def _update_reading(self) -> None:
        session, host = self.session, self._host
        if session.is_over:
            return
        if session.reading_paused:
            host.hold_reading(_HOLD)
        elif host.is_reading_held:
            host.release_reading(_HOLD)
            session.reading_resumed(self._env.clock.monotonic_ms())

    def writing_resumed(self) -> None:
        """The client reads again."""
        if self._inbox is not None:
            self._inbox.drain()
        if self._stored is not None:
            self._stored.drain()

    def check_deadline(self, now_ms: int) -> int | None:
        """Ends a connection that was silent for too long; else the time to look again."""
        self._host.count_octets()
        if self._host.is_paused or self._host.is_waiting_for_turn:
            return now_ms + 1_000
        closed = self.session.check_deadline(now_ms)
        if closed is not None:
            if closed.reason_code == ReasonCode.KEEP_ALIVE_TIMEOUT:
                self._env.counters.keep_alive_timeouts += 1
            self._closed(closed)
            return None
        deadline_ms = self.session.deadline_ms
        if deadline_ms is not None and deadline_ms <= now_ms:
            # Paused: the client cannot be heard, so it is not the one who is late.
            return now_ms + 1_000
        return deadline_ms

    def recheck(self) -> Iterator[None]:
        """`adapters.base.Holder`. MQTT has no word for one subscription that the server ends, so
        that the connection goes with it.
        """
        rights = self._rights
        if rights is None:
            return
        if not rights.is_alive():
            gone = "the user was removed, disabled or signed out"
            self._fail(ReasonCode.ADMINISTRATIVE_ACTION, gone)
        elif self._chose_id and not rights.allows(USE_CLIENT, self._client_id):
            self._env.counters.revoked += 1
            self._fail(ReasonCode.NOT_AUTHORIZED, "the client identifier may not be used any more")
        elif self._requests is not None:
            yield from self._requests.recheck()

    @property
    def owner(self) -> tuple[str, str]:
        """Tenant and user; empty until somebody has signed in."""
        rights = self._rights
        return ("", "") if rights is None else (rights.principal.tenant, rights.principal.name)

    def subscriptions_shown(self, most: int) -> list[ConsumerShown]:
        """What it is subscribed to."""
        if self._inbox is None:
            return []
        return [
            ConsumerShown(
                each, each, ack_required=True, prefetch_count=0, messages_unacknowledged=0
            )
            for each in islice(self._inbox.subscriptions, most)
        ]

    def end(self, reason: str) -> None:
        """An operator closes it."""
        self._fail(ReasonCode.ADMINISTRATIVE_ACTION, reason)

    def shut_down(self) -> None:
        """Says goodbye: the server stops."""
        self._closed(self.session.disconnect(ReasonCode.SERVER_SHUTTING_DOWN))

    @property
    def is_connected(self) -> bool:
        """Whether its client was let in and is still there."""
        return self.session.state is ConnectionState.CONNECTED

    @property
    def consumer_key(self) -> SessionId | None:
        """Whose the consumers of its subscriptions are; None: it has none."""
        return self._kernel_session.id if self._kernel_session is not None else None

    def send_elsewhere(self, place: str | None) -> None:
        """Says goodbye: the client is to use another server, `host:port` if it is known."""
        code = ReasonCode.USE_ANOTHER_SERVER
        self._closed(self.session.disconnect(code, "moved", server_reference=place))

    def lost(self) -> None:
        """The transport is gone."""
        closed = self.session.connection_lost()
        if closed is not None:
            self._closed(closed)

    def refuse_memory(self) -> None:
        """What it has sent in part, or does not read or answer, is too much for the gateway."""
        self._fail(ReasonCode.QUOTA_EXCEEDED, "it takes too much of the server's memory")

    def fail_internally(self) -> None:
        """A bug of ours: the client is told something, and the rest of the server goes on."""
        closed = self.session.disconnect(ReasonCode.UNSPECIFIED_ERROR, "internal error")
        # It may have been over, and the bug in what was to be done about that.
        self._closed(closed or self.session.ended)

    def _fail(self, code: ReasonCode, detail: str) -> None:
        self._closed(self.session.disconnect(code, detail))

    # --- Events -----------------------------------------------------------------------------

    def _on_event(self, event: Event) -> None:
        if isinstance(event, PublishRun):
            self._publishing().publish(event)
        elif isinstance(event, DeliveriesCompleted):
            self._completed(event)
        elif isinstance(event, DeliveriesReceived):
            if self._stored is not None:
                self._stored.received(event)
            else:
                self.session.receipts_committed(event.packet_ids)
        elif isinstance(event, PublishesReleased):
            self._publishing().released(event)
        elif isinstance(event, ConnectReceived):
            self._env.run(self._decide(event))
        elif isinstance(event, ConnectionClosed):
            self._closed(event)
        elif isinstance(event, AuthenticationReceived):
            # No method is offered, so CONNECT with one was refused already.
            raise LocalProtocolError("AUTH, and no method is offered")
        else:
            if self._charging is not None:
                self._charging.requested()
            self._requesting().received(event)

    def _completed(self, event: DeliveriesCompleted) -> None:
        if self._stored is not None:
            self._stored.completed(event)
        if self._inbox is not None:
            self._inbox.drain()

    # --- CONNECT ----------------------------------------------------------------------------

    async def _decide(self, event: ConnectReceived) -> None:
        """Sign the client in, check its rights, open its session, then answer CONNECT."""
        try:
            await self._admit(event)
        except AuthError as error:
            self._env.counters.logins_refused += 1
            self._refuse(sign_in_reason(error), "")
        except KernelError as error:
            self._env.counters.not_owner += error.code is Code.NOT_ALLOWED
            self._refuse(reason_of(error), error.message)
        except Exception:  # noqa: BLE001 - a bug: logged, and an answer instead of silence
            _log.exception("internal error", where="connect", peer=self._host.peer)
            self.fail_internally()

    async def _admit(self, event: ConnectReceived) -> None:
        env, connect = self._env, event.connect
        assigned = ""
        if event.client_id_needed:
            assigned = f"{ASSIGNED_ID_PREFIX}{env.random.bits(_ASSIGNED_ID_BITS):024x}"
        self._client_id = assigned or connect.client_id
        self._chose_id = not assigned
        host = self._host
        login = Login(
            connect.username, connect.password, self._client_id, host.peer, host.certified
        )
        rights = await env.sign_in.sign_in(login)
        if self._is_over():
            return
        if self._chose_id and not rights.allows(USE_CLIENT, self._client_id):
            self._env.counters.not_owner += 1
            self._refuse(ReasonCode.NOT_AUTHORIZED, "the client identifier may not be used")
            return
        will = self._will_of(connect)
        if will is not None and not rights.allows(PUBLISH_TREE, will.topic):
            self._refuse(ReasonCode.NOT_AUTHORIZED, "the will may not be published")
            return
        account = self._account(rights)
        most = account.message_bytes_max
        if will is not None and most is not None and len(will.payload) > most:
            # Once it is accepted it is published, whatever else is limited.
            account.refused(account.too_large)
            self._refuse(ReasonCode.QUOTA_EXCEEDED, f"a will has at most {most} bytes")
            return
        self._rights = rights
        self._persistent = event.session_expiry_s > 0
        subscriber = await env.tree.open(self._spec(connect, event.session_expiry_s, rights), self)
        if self._is_over():
            # Gone meanwhile: nobody was told that there is a session or a will.
            await subscriber.close(will=False)
            return
        limit = account.connected()
        if limit is not None:
            # Not before it is known whose connection this one takes the place of.
            account.refused(limit)
            await subscriber.close(will=False)
            self._refuse(ReasonCode.QUOTA_EXCEEDED, f"the limit {limit} is reached")
            return
        self._counted_by = account
        self._subscriber = subscriber
        self._charging = Charging(env.limiter, account)
        self._charging.requested()
        self._host.signed_in(rights.principal.tenant)
        self._counted = env.figures.of(rights.principal.tenant)
        self._counted.entered()
        self.is_bridge = connect.is_bridge or will is not connect.will
        await self._accept(assigned)

    def _account(self, rights: Rights) -> Account:
        principal = rights.principal
        return self._env.limiter.account(principal.tenant, principal.name, self._host.listener)

    def _will_of(self, connect: Connect) -> GivenWill | None:
        """The will that is to be kept: not what a bridge says of its own connection."""
        will = connect.will
        return None if will is None or will.topic == state_of(self._client_id) else will

    def _is_over(self) -> bool:
        """Whether the client has gone while something was awaited."""
        return self.session.is_over

    def _spec(self, connect: Connect, expiry_s: int, rights: Rights) -> SubscriberSpec:
        env, principal = self._env, rights.principal
        name = subscriber_name(self._client_id)
        will, given = None, self._will_of(connect)
        if given is not None:
            delay_s = given.properties.will_delay_interval or 0
            will = Will(
                given.topic,
                will_slot(
                    given,
                    env.known[given.topic],
                    (env.random.bits(64), env.random.bits(64)),
                    env.clock.wall_ms(),
                    MQTT_5 if connect.level == MQTT_5 else MQTT_3_1_1,
                    publisher_hash(name),
                ),
                min(delay_s, expiry_s) * 1000,
                given.retain,
                # Nobody but the store's own users is asked about when it is due.
                principal.name if principal.kind is PrincipalKind.USER else "",
                self._client_id,
            )
        return SubscriberSpec(
            rights.principal.tenant,
            name,
            connect.clean_start,
            expiry_ms(expiry_s),
            will,
            rights.principal.name,
            partial(may_have, rights),
        )

    async def _accept(self, assigned: str) -> None:
        subscriber, session = self._subscriber, self.session
        assert subscriber is not None
        kept = subscriber.notes if subscriber.resumed else {}
        sent = notes.deliveries_of(kept)
        events = session.accept(
            Welcome(session_present=subscriber.resumed, assigned_client_id=assigned),
            self._env.clock.monotonic_ms(),
            in_flight=StoredDeliveries.released(sent),
            received_ids=notes.received_of(kept),
        )
        self._host.deadline_moved()
        if sent:
            self._storing().resume(sent)
        if subscriber.resumed and (subscriber.subscriptions or subscriber.notes):
            self._host.write_soon()
            await self._requesting().resume()
        self._handle(events)

    def _refuse(self, code: ReasonCode, reason: str) -> None:
        closed = self.session.refuse(code, reason)
        if closed is not None:
            self._closed(closed)

    # --- The parts --------------------------------------------------------------------------

    def _kernel(self) -> KernelSession:
        if self._kernel_session is None:
            self._kernel_session = self._env.client.open_session(
                f"mqtt {self._host.peer}", ORIGIN_BYTE, self._host.connected_user()
            )
        return self._kernel_session

    def _publishing(self) -> SessionPublisher:
        if self._publisher is None:
            assert self._rights is not None
            assert self._subscriber is not None
            assert self._charging is not None
            self._publisher = SessionPublisher(
                self._env,
                self._host,
                self.session,
                self._rights,
                self._subscriber,
                self._kernel(),
                publisher_hash(self._subscriber.name),
                persistent=self._persistent,
                client_id=self._client_id,
                close=self._answered,
                charging=self._charging,
                charged=self._charged_later,
            )
        return self._publisher

    def _answered(self, closed: ConnectionClosed | None) -> None:
        """Messages were answered: a refusal may have ended the connection, an answer may let the
        client send more.
        """
        if closed is not None:
            self._closed(closed)
        else:
            self._update_reading()

    def _receiving(self) -> Inbox:
        if self._inbox is None:
            assert self._subscriber is not None
            assert self._rights is not None
            assert self._charging is not None
            self._inbox = Inbox(
                self._env,
                self._host,
                self.session,
                publisher_hash(self._subscriber.name),
                self._rights,
                self._env.traffic.of(self._rights.principal.tenant),
                Delivering(self._env.limiter, self._charging.account),
            )
        return self._inbox

    def _storing(self) -> StoredDeliveries:
        if self._stored is None:
            assert self._subscriber is not None
            self._stored = StoredDeliveries(
                self._env,
                self._host,
                self.session,
                self._receiving(),
                self._subscriber,
                self._kernel(),
                persistent=self._persistent,
                fail=self._fail,
            )
        return self._stored

    def _requesting(self) -> Requests:
        if self._requests is None:
            assert self._rights is not None
            assert self._subscriber is not None
            self._requests = Requests(
                self._env,
                self.session,
                self._rights,
                self._subscriber,
                self._receiving(),
                persistent=self._persistent,
                kernel_session=self._kernel,
                stored=self._storing,
                served=self._served,
                fail=self._fail,
            )
        return self._requests

    def _served(self) -> None:
        self._host.write_soon()
        self._update_reading()

    # --- The end ----------------------------------------------------------------------------

    def taken_over(self, subscriber: Subscriber) -> None:
        """See `SubscriberSink`."""
        self._env.counters.taken_over += 1
        self._subscriber = None
        self._fail(ReasonCode.SESSION_TAKEN_OVER, "another connection has the client identifier")

    def _closed(self, event: ConnectionClosed | None) -> None:
        """The connection is over: what it had goes back, what outlives it is written down."""
        if event is None or self._is_closed:
            return
        self._is_closed = True
        if self._counted_by is not None:
            self._counted_by.disconnected()
        if self._charging is not None:
            self._charging.drop_kept()
        changes = self._stored.close() if self._stored is not None else []
        if self._inbox is not None:
            self._inbox.close()
        if self._kernel_session is not None:
            self._kernel_session.close()
        if self._counted is not None:
            self._counted.left()
        subscriber, self._subscriber = self._subscriber, None
        if subscriber is not None and event.accepted:
            self._env.run(self._leave(subscriber, event, changes))
        self._env.closings.note(self._host, self._client_id, event)
        self._host.close()

    async def _leave(
        self, subscriber: Subscriber, event: ConnectionClosed, changes: Sequence[notes.Change]
    ) -> None:
        try:
            await subscriber.close(
                will=event.will is not None,
                expiry_ms=expiry_ms(event.session_expiry_s),
                notes=changes,
            )
        except KernelError as error:
            _log.error(
                "session not closed in order", client_id=self._client_id, reason=error.message
            )
