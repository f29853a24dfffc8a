"""One connection: bytes in, bytes and calls of the kernel out; no sockets, no clocks, no tasks.

The driver (`AmqpHost`) calls `receive`, `resume`, `finish_turn`, `writing_paused`, `tick` and
`lost`. `lifecycle` has the tables of states; this file carries them out, over a `Reader` for input,
`Operations` for what must be awaited, `ChannelPublisher` and `Consumers` for messages.

Rules:

1. Frames are taken in order, and answers on a connection come in the order of the questions
   (`operations`); confirms and deliveries come when they come.
2. What a read brought is handed over when it has been parsed: one batch of publishes, one
   settlement per consumer. What is to be written is collected and written once per turn.
3. A soft error closes its channel and the frames behind it are read on; a hard one closes the
   connection. After a broken envelope nothing that follows can be read, and it is thrown away.
4. Time comes in as a parameter of `tick`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from adapters.amqp import handshake, limits
from adapters.amqp.caller import Caller
from adapters.amqp.channel.channel_methods import ChannelMethods
from adapters.amqp.channel.consuming import Consumers
from adapters.amqp.channel.open_channel import Channel
from adapters.amqp.channel.publishing import ChannelPublisher
from adapters.amqp.codec import spec
from adapters.amqp.codec.frames import (
    FRAME_BODY,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    HEARTBEAT,
    PROTOCOL_HEADER,
)
from adapters.amqp.codec.methods import decode_method, encode_method
from adapters.amqp.connection.frame_reader import HeldBack, Reader
from adapters.amqp.connection.liveness import Liveness, Verdict
from adapters.amqp.connection.operations import Operation, Operations
from adapters.amqp.errors import (
    CHANNEL_ERROR,
    CONNECTION_FORCED,
    FRAME_ERROR,
    INTERNAL_ERROR,
    LOGIN,
    NO_HEADER,
    NOT_ALLOWED,
    REPLY_NAMES,
    SILENT,
    UNEXPECTED_FRAME,
    AmqpError,
    LoginRefused,
)
from adapters.amqp.handshake import Agreement, ClientFeatures
from adapters.amqp.lifecycle import (
    ChannelState,
    ConnectionState,
    Step,
    channel_step,
    connection_step,
)
from auth.errors import AuthError

if TYPE_CHECKING:
    from adapters.amqp.codec.method_base import Method
    from adapters.amqp.environment import AmqpHost, Environment
    from adapters.base import Rights
    from kernel.api.client import PublishBatch, Session
    from kernel.quotas.account import Account

_ENDED = (ConnectionState.CLOSING, ConnectionState.REFUSED, ConnectionState.GONE)


class Connection:
    """The state machine of one connection."""

    def __init__(self, environment: Environment, host: AmqpHost) -> None:
        self._environment = environment
        self._host = host
        self._settings = environment.settings
        self.state = ConnectionState.HEADER
        self.features = ClientFeatures()
        self.agreement = Agreement(0, limits.HANDSHAKE_FRAME_MAX, 0)
        self.login = ""
        self.reason = ""
        """Why it is closing, for the operator."""
        self.channels: dict[int, Channel] = {}
        self.session: Session | None = None
        self._counted_by: Account | None = None
        """Which counts the connection."""
        self.rights: Rights | None = None
        self.caller: Caller | None = None
        self.reader = self._reader = Reader(host, self, self.channels)
        self._operations = Operations(host, self)
        self._publisher: ChannelPublisher | None = None
        self._consumers: Consumers | None = None
        self._methods: ChannelMethods | None = None
        self._loads = 0
        self._news: dict[Channel, None] = {}
        self.is_blocked = False
        """Whether the client was told that new messages are refused."""
        self._farewell: AmqpError | None = None
        now_ms = host.monotonic_ms()
        self._liveness = Liveness(now_ms, now_ms + self._settings.handshake_timeout_ms)

    # --- Input ------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """One socket read brought these bytes."""
        self._reader.receive(data)

    def resume(self) -> None:
        """The operation given to `AmqpHost.run` has ended: read on."""
        self._reader.resume()

    def begin_read(self, size: int) -> int:
        """Frames of one socket read follow: how much may be taken before the limits are asked."""
        if self._publisher is None:
            return 0
        self._publisher.begin_chunk()
        return self._publisher.charging.piece(size)

    def piece_taken(self, left: int) -> int:
        """The same, after a part of them: enough of it, and the rest waits."""
        if self._publisher is None:
            return 0
        self._publisher.submit()
        self._wait_for_limits()
        return self._publisher.charging.piece(left)

    def go_on(self) -> int:
        """After a pause: go on with what was read, unless more is owed; for how long to wait."""
        publisher = self._publisher
        if publisher is None or self.state in _ENDED:
            return 0
        publisher.submit_kept()
        delay_ms = publisher.charging.owes_ms()
        if not delay_ms:
            self._reader.unpause()
            self._settle_acks()
            # What was held back may be more than is allowed again.
            delay_ms = publisher.charging.owes_ms() if self._reader.is_paused else 0
        return delay_ms

    def leave(self) -> None:
        """Its client has left, or has to, and is not waited for any longer."""
        if self._publisher is not None and self._publisher.charging.account.is_limited:
            self._publisher.charging.leave()

    def deliver_again(self) -> None:
        """Consumers had to wait because of a limit: see whether they still have to."""
        if self._consumers is not None and self.state not in _ENDED:
            self._consumers.deliver_again()

    def _wait_for_kept(self) -> None:
        """The client says goodbye behind messages that a limit keeps back: those come first. Raises
        HeldBack.
        """
        if self._publisher is not None:
            self._publisher.submit()
            if self._publisher.charging.keeps:
                raise HeldBack

    def _wait_for_limits(self) -> None:
        assert self._publisher is not None
        delay_ms = self._publisher.charging.take_delay_ms()
        if delay_ms:
            self._reader.pause()
            self._host.pause(delay_ms)

    def end_read(self) -> None:
        """Give the kernel what they brought; start what had to wait for that."""
        if self._publisher is not None:
            self._publisher.submit()
            self._wait_for_limits()
            if self._publisher.has_published and not self._environment.client.accepting:
                self.block()
        self._settle_acks()
        self._operations.try_start()

    def _settle_acks(self) -> None:
        """Those that were read, unless they may be behind messages that a limit keeps back: who has
        published what he made of a message, and acks it then, must not lose both.
        """
        charging = self._publisher.charging if self._publisher is not None else None
        if self._consumers is not None and not (charging and (charging.keeps or charging.is_left)):
            self._consumers.settle_acks()

    def take_header(self, *, is_amqp: bool) -> None:
        """The protocol header; to any other one the answer is what we speak."""
        if not is_amqp:
            self._host.out.append(PROTOCOL_HEADER)
            self._host.figures.refuse(NO_HEADER)
            self._go("no AMQP 0-9-1 protocol header")
            return
        self.state = ConnectionState.START
        is_certified = self._host.certified is not None
        self.send(0, handshake.start(self._settings, is_certified=is_certified))

    def take_frame(self, kind: int, number: int, data: bytes, start: int, stop: int) -> None:
        """One frame. Raises AmqpError, KernelError, NotLoaded."""
        if kind == FRAME_HEARTBEAT:
            if number:
                raise AmqpError(FRAME_ERROR, f"a heartbeat on channel {number}")
        elif number == 0:
            self._take_connection_frame(kind, data, start, stop)
        elif self.state is ConnectionState.OPEN:
            channel = self.channels.get(number)
            if kind == FRAME_METHOD:
                self._take_channel_method(number, channel, data, start, stop)
            elif channel is None:
                raise AmqpError(CHANNEL_ERROR, f"content on channel {number}, which is not open")
            elif channel.state is ChannelState.OPEN:
                self._take_content(channel, kind, data[start:stop])
        elif self.state not in _ENDED:
            raise AmqpError(CHANNEL_ERROR, f"channel {number} is used before connection.open")

    def _take_connection_frame(self, kind: int, data: bytes, start: int, stop: int) -> None:
        if kind != FRAME_METHOD:
            raise AmqpError(UNEXPECTED_FRAME, "content on channel 0")
        method = decode_method(data, start, stop)
        if isinstance(method, spec.ConnectionClose):
            self._wait_for_kept()
        try:
            step = connection_step(self.state, type(method))
            if step is not None:
                self._carry_out(0, self, step, method, ())
        except AmqpError as error:
            raise error.blame(method.class_id, method.method_id) from None

    def _take_channel_method(
        self, number: int, channel: Channel | None, data: bytes, start: int, stop: int
    ) -> None:
        method = decode_method(data, start, stop)
        try:
            step = channel_step(None if channel is None else channel.state, type(method))
            if step is None:
                return
            if channel is None:
                self._open_channel(number)
            elif isinstance(method, spec.ChannelCloseOk):
                del self.channels[number]
            else:
                channel.check_between_messages(method)
                if isinstance(method, spec.BasicPublish):
                    assert self._publisher is not None
                    self._publisher.begin(channel, data[start + 6 : stop])
                else:
                    assert self._methods is not None
                    self._carry_out(number, self._methods, step, method, (channel,))
        except AmqpError as error:
            raise error.blame(method.class_id, method.method_id) from None

    def _take_content(self, channel: Channel, kind: int, payload: bytes) -> None:
        assembly = channel.assembly
        publisher = self._publisher
        assert publisher is not None
        try:
            if kind == FRAME_HEADER and assembly is not None and assembly.stamp is None:
                publisher.header(channel, assembly, payload)
            elif kind == FRAME_BODY and assembly is not None and assembly.stamp is not None:
                publisher.body(channel, assembly, payload)
            else:
                channel.refuse_content(kind)
        except AmqpError as error:
            raise error.blame(spec.BasicPublish.class_id, spec.BasicPublish.method_id) from None

    def _carry_out(
        self, number: int, where: object, step: Step, method: Method, leading: tuple[object, ...]
    ) -> None:
        """Call the handler of a step now, or have it run by the host."""
        handler = getattr(where, step.handler)
        self._loads = 0
        if step.waits:
            if self._publisher is not None:
                self._publisher.charging.requested()
            is_answered = not getattr(method, "nowait", False)
            self._reader.stop()
            work = partial(handler, *leading, method)
            self._operations.begin(Operation(number, type(method), work, step.fenced, is_answered))
        else:
            handler(*leading, method)

    def load(self, number: int, payload: bytes) -> None:
        """A publish met names that are not loaded: load them, then its frame is taken again."""
        self._loads += 1
        if self._loads > limits.LOAD_ATTEMPTS_MAX:
            self.fail(0, AmqpError(INTERNAL_ERROR, "names could not be loaded"))
            self._reader.end()
            return
        assert self._publisher is not None
        assert self.rights is not None
        exchange, key = self._publisher.names_in(self.channels[number], payload)
        tenant = self.rights.principal.tenant
        loading = partial(self._environment.declarations.load, tenant, exchange, key)
        self._operations.begin(
            Operation(number, spec.BasicPublish, loading, is_fenced=False, is_answered=False)
        )

    @property
    def publish_bytes_in_flight(self) -> int:
        """Bytes handed to the kernel and not answered."""
        return self._publisher.bytes_in_flight if self._publisher is not None else 0

    def has_work_under_way(self) -> bool:
        """Whether something published or given back is not done yet."""
        publisher = self._publisher
        return self._has_work_at_kernel() or (publisher is not None and publisher.charging.keeps)

    def _has_work_at_kernel(self) -> bool:
        publisher, consumers = self._publisher, self._consumers
        return (publisher is not None and publisher.batches_in_flight > 0) or (
            consumers is not None and consumers.releases_in_flight > 0
        )

    # --- Output -----------------------------------------------------------------------------

    def send(self, number: int, method: Method) -> None:
        """Append a method to the output. Nothing is said after goodbye."""
        if self.state is ConnectionState.GONE:
            return
        self._host.out.append(encode_method(number, method))
        self._host.write_soon()

    def has_news(self, channel: Channel) -> None:
        """Confirms of a channel are to be sent at the end of the turn."""
        self._news[channel] = None
        self._host.write_soon()

    def finish_turn(self) -> None:
        """The driver is about to write: complete the output of this turn."""
        if self.state in _ENDED:
            return
        if self._consumers is not None:
            self._consumers.replenish()
            # Behind the answer of an operation: queue.delete ends its own connection's consumers.
            if not self._operations.is_running:
                self._consumers.tell_of_ended(wants_notice=self.features.wants_cancel_notify)
        if self._news:
            out = self._host.out
            for channel in self._news:
                if channel.confirms is not None and channel.state is ChannelState.OPEN:
                    out.append(channel.confirms.take(channel.number))
            self._news.clear()
        self._operations.try_start()
        if self._farewell is not None and not (
            self._operations.is_running or self._has_work_at_kernel()
        ):
            farewell, self._farewell = self._farewell, None
            self._host.release_reading("farewell")
            self._close(farewell)

    def writing_paused(self, *, is_paused: bool) -> None:
        """The peer does not read, or reads again: its consumers' credit follows."""
        if self._consumers is not None:
            self._consumers.writing_paused(self.channels.values(), is_paused=is_paused)

    def published(self, batch: PublishBatch) -> None:
        """The kernel has stored, or refused, a batch; the messages' own publisher hears of it."""
        assert self._publisher is not None
        self._publisher.published(batch)
        if self._operations.is_waiting or self._farewell is not None:
            self._host.write_soon()

    # --- The handshake ----------------------------------------------------------------------

    async def on_start_ok(self, method: spec.ConnectionStartOk) -> Method | None:
        """The login. It awaits the password check."""
        self.features = handshake.client_features(method.client_properties)
        sign_in, host = self._environment.sign_in, self._host
        try:
            if method.mechanism == handshake.EXTERNAL:
                self.login = handshake.certified_login(method, host.certified)
                self.rights = sign_in.without_password(self.login, host.peer)
            else:
                login = handshake.credentials(method)
                self.login = login.login
                self.rights = await sign_in.sign_in(login.login, login.password, host.peer)
        except AuthError as error:
            self._environment.counters.logins_refused += 1
            raise handshake.sign_in_error(error, method.mechanism) from None
        self.state = ConnectionState.TUNE
        settings = self._settings
        return spec.ConnectionTune(settings.channel_max, settings.frame_max, settings.heartbeat_s)

    def on_tune_ok(self, method: spec.ConnectionTuneOk) -> None:
        """The limits are agreed; the larger frames are allowed from now on."""
        self.agreement = handshake.agree(self._settings, method)
        self.state = ConnectionState.OPENING

    def on_open(self, method: spec.ConnectionOpen) -> None:
        """The virtual host: from here on there is a kernel session."""
        rights = self.rights
        assert rights is not None
        environment, tenant = self._environment, rights.principal.tenant
        if method.virtual_host != self._settings.virtual_host_of(tenant):
            raise AmqpError(
                NOT_ALLOWED,
                f"access to vhost '{method.virtual_host}' refused for user "
                f"'{rights.principal.name}'",
            )
        limiter, listener = environment.limiter, self._host.listener_name
        account = limiter.account(tenant, rights.principal.name, listener)
        limit = account.connected()
        if limit is not None:
            account.refused(limit)
            raise AmqpError(
                NOT_ALLOWED,
                f"access to vhost '{method.virtual_host}' refused for user "
                f"'{rights.principal.name}': connection limit ({limit}) is reached",
            )
        self._counted_by = account
        self.session = environment.open_session(self._host, tenant, self.features.name)
        caller = self.caller = Caller(tenant, method.virtual_host, rights, self.session, account)
        frame_max = self.agreement.frame_max
        publisher = ChannelPublisher(environment, self._host, caller, self, frame_max)
        consumers = Consumers(environment, self._host, caller, frame_max)
        publisher.begin_chunk()
        self._methods = ChannelMethods(environment, caller, consumers, publisher, self)
        self._publisher = self._reader.publisher = publisher
        self._consumers = self._reader.consumers = consumers
        self._reader.frame_max = frame_max
        self.state = ConnectionState.OPEN
        self._liveness.deadline = None
        self._liveness.agreed(self.agreement.heartbeat_s)
        self.send(0, spec.ConnectionOpenOk())

    async def on_update_secret(self, method: spec.ConnectionUpdateSecret) -> Method:
        """A new password or token for the same login."""
        try:
            rights = await self._environment.sign_in.sign_in(
                self.login, method.new_secret, self._host.peer
            )
        except AuthError as error:
            raise AmqpError(NOT_ALLOWED, f"the new secret was refused: {error.message}") from None
        assert self.rights is not None
        if rights.principal != self.rights.principal:
            raise AmqpError(NOT_ALLOWED, "the new secret is another principal's")
        return spec.ConnectionUpdateSecretOk()

    # --- Channels ---------------------------------------------------------------------------

    def _open_channel(self, number: int) -> None:
        if number > self.agreement.channel_max:
            raise AmqpError(
                NOT_ALLOWED,
                f"number of channels opened is limited: channel {number} is above the negotiated "
                f"channel_max ({self.agreement.channel_max})",
            )
        self.channels[number] = Channel(number, self)
        self.send(number, spec.ChannelOpenOk())

    def close_channel(self, channel: Channel) -> None:
        """Forget a channel: its consumers end, what it has unacknowledged is given back."""
        self._release_channel(channel)
        del self.channels[channel.number]

    def _release_channel(self, channel: Channel) -> None:
        channel.state = ChannelState.CLOSING
        if self._publisher is not None:
            self._publisher.drop(channel)
        for consumer in channel.take_consumers():
            consumer.cancel()
        if self._consumers is not None:
            self._consumers.give_back(channel.take_all())

    # --- Errors and the end -----------------------------------------------------------------

    def fail(self, number: int, error: AmqpError) -> None:
        """Tell the client of an error, by closing the channel or the connection."""
        channel = self.channels.get(number)
        if error.hard or channel is None:
            self._close(error)
        elif self.state not in _ENDED and channel.state is ChannelState.OPEN:
            self._release_channel(channel)
            close = spec.ChannelClose(error.code, error.text, error.class_id, error.method_id)
            self.send(number, close)

    def fail_internally(self) -> None:
        """A bug ended an operation: the client is told, the driver has logged it."""
        self.fail(0, AmqpError(INTERNAL_ERROR, "an internal error; the server's log says more"))

    def _close(self, error: AmqpError) -> None:
        """Say goodbye: connection.close, then wait for its answer."""
        if self.state in _ENDED:
            return
        self.reason = str(error)
        self._count_refusal(error)
        self._end_work()
        now_ms = self._host.monotonic_ms()
        if isinstance(error, LoginRefused) and not self.features.wants_failure_close:
            # This client takes nothing but silence for an answer.
            self.state = ConnectionState.REFUSED
            self._liveness.deadline = now_ms + self._settings.refusal_delay_ms
            return
        self.send(0, spec.ConnectionClose(error.code, error.text, error.class_id, error.method_id))
        self.state = ConnectionState.CLOSING
        self._liveness.deadline = now_ms + self._settings.close_timeout_ms

    def _count_refusal(self, error: AmqpError) -> None:
        if isinstance(error, LoginRefused):
            self._host.figures.refuse(LOGIN)
        elif error.code != CONNECTION_FORCED:
            self._host.figures.refuse(REPLY_NAMES[error.code].lower())

    def _end_work(self) -> None:
        """Finish what was begun and end the session: leases return, transient property goes."""
        self._operations.cancel()
        if self._publisher is not None:
            self._publisher.submit()
        self._settle_acks()
        if self._publisher is not None:
            self._publisher.charging.drop_kept()
        for channel in self.channels.values():
            channel.state = ChannelState.CLOSING
            channel.take_consumers()
            channel.unacked.clear()
        session, self.session = self.session, None
        if session is not None:
            session.close()
        if self._counted_by is not None:
            self._counted_by.disconnected()
            self._counted_by = None

    def on_close(self, _method: spec.ConnectionClose) -> None:
        """The client goes."""
        if self.state not in _ENDED:
            self._end_work()
        self.send(0, spec.ConnectionCloseOk())
        self._go("closed by the client")

    def on_close_ok(self, _method: spec.ConnectionCloseOk) -> None:
        """The client has heard our goodbye, or says that it has, and there was none."""
        if self.state not in _ENDED:
            self._end_work()
        self._go("closed by the client")

    def _go(self, reason: str) -> None:
        """The end: everything is said."""
        self.reason = self.reason or reason
        self.state = ConnectionState.GONE
        self._reader.end()
        self._host.close(self.reason)

    def lost(self) -> None:
        """The transport is gone."""
        if self.state not in _ENDED:
            self._end_work()
        self.reason = self.reason or "the client left without goodbye"
        self.state = ConnectionState.GONE
        self._reader.end()

    def shut_down(self, why: str) -> None:
        """Say goodbye once everything that was published is answered."""
        if self.state is ConnectionState.OPEN:
            # What a limit keeps back is not waited for.
            self.leave()
            self._farewell = AmqpError(CONNECTION_FORCED, why)
            self._host.hold_reading("farewell")
            self._host.write_soon()
        elif self.state not in _ENDED:
            self._go(why)

    # --- Alarms and time --------------------------------------------------------------------

    def block(self) -> None:
        """New messages are refused (low disk): tell the client, and read no more of them."""
        if self.state is not ConnectionState.OPEN or self._publisher is None:
            return
        if self._publisher.has_published:
            self._host.hold_reading("blocked")
        if not self.is_blocked:
            self.is_blocked = True
            if self.features.wants_blocked:
                self.send(0, spec.ConnectionBlocked("low on disk"))

    def unblock(self) -> None:
        """New messages are taken again."""
        self._host.release_reading("blocked")
        if self.is_blocked:
            self.is_blocked = False
            if self.features.wants_blocked and self.state is ConnectionState.OPEN:
                self.send(0, spec.ConnectionUnblocked())

    def tick(self, now_ms: int) -> None:
        """About once a second: deadlines, heartbeats, and consumers that hold what they got."""
        host = self._host
        verdict = self._liveness.check(
            now_ms, host.bytes_in, host.bytes_out, is_held=host.is_reading_held
        )
        if verdict is Verdict.LATE:
            self._host.figures.refuse(SILENT)
            self._go("the peer did not answer in time")
        elif self.state is not ConnectionState.OPEN:
            return
        elif verdict is Verdict.SILENT:
            self._end_work()
            self._host.figures.refuse(SILENT)
            self._go(f"nothing came for two heartbeat intervals of {self.agreement.heartbeat_s} s")
        else:
            if verdict is Verdict.BEAT:
                host.out.append(HEARTBEAT)
                host.write_soon()
            # Between operations, so that none is answered on a channel that is closing.
            if not (self._operations.is_running or self._operations.is_waiting):
                assert self._consumers is not None
                for channel, error in self._consumers.patiences.check(now_ms):
                    self.fail(channel.number, error)

    def rights_changed(self) -> None:
        """What its publishes lead to may not be allowed any more: they ask again."""
        if self._publisher is not None:
            self._publisher.targets.recheck()
