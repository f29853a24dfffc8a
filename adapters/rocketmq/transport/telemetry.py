"""Telemetry: the stream on which client and server tell each other what they want.

Clients send their settings and get them back completed (`client_settings`); producers are asked
what became of transactions (`transactions`). What is to be sent
waits in a bounded queue and is written by a task of its own, with a limit on the time: the Python
client stops to read after its first settings (docs/design/rocketmq.md), and nobody else may wait
for it. A stream whose client reads nothing is ended; clients open a new one.

A stream also shows that its client lives. It is ended when the adapter drains, because clients
take that for the sign to connect anew.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING

import structlog

from adapters.connections import (
    CLIENT_CHARACTERS_MAX,
    ChannelShown,
    ConnectionShown,
    id_of,
    next_number,
)
from adapters.moving import STAYING_MAX, Moving
from kernel.common.errors import KernelError

from ..clients import client_settings
from ..codec import answer_encoding as wire
from ..codec.stubs import parse_telemetry_command
from ..errors import RocketmqError, from_kernel
from ..services.charging import connect
from ..settings import (
    MOVED_SILENT_MS,
    QUESTION_BYTES_MAX,
    TELEMETRY_QUEUE_MAX,
    TELEMETRY_WRITE_TIMEOUT_S,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from adapters.moving import ConsumersByKey
    from adapters.transport import Tasks

    from ..clients.callers import Caller
    from ..clients.registry import KnownClient
    from ..environment import Call
    from ..services.messaging_service import Service
    from ..services.questions import Questions

_log = structlog.get_logger("weir.rocketmq")

_LIBRARY = ("x-mq-language", "x-mq-client-version")
"""Headers in which a client says what its library is."""


def _library_of(call: Call) -> str:
    """What a client says that its library is."""
    said = {name: str(value) for name, value in call.metadata if name in _LIBRARY}
    return " ".join(said[name] for name in _LIBRARY if name in said)[:CLIENT_CHARACTERS_MAX]


class Stream:
    """The open telemetry stream of one client."""

    def __init__(
        self,
        call: Call,
        caller: Caller,
        client: KnownClient,
        listener: str,
        peer: str,
        library: str = "",
        *,
        is_encrypted: bool = False,
    ) -> None:
        """`peer`: address and port of the client; `library`: its own; empty: not known.
        `is_encrypted`: it came by TLS.
        """
        self._call = call
        self._is_encrypted = is_encrypted
        self._peer = peer
        self._caller = caller
        self._listener = listener
        self.client = client
        # Bounded by `push` and `ask`, each for its own kind.
        self._commands: asyncio.Queue[tuple[bytes, int]] = asyncio.Queue()
        self._answers = 0
        self._asked_bytes = 0
        self.ended = asyncio.Event()
        self.was_cut = False
        """Whether it was ended because the client did not read."""
        self.was_revoked = False
        """Whether it was ended because its caller is admitted no more."""
        self.is_moving = False
        """Whether its client has been asked to use another gateway."""
        self._client = library
        self.number = next_number()
        self._opened_s = asyncio.get_running_loop().time()

    @property
    def owner(self) -> tuple[str, str]:
        """Tenant and user."""
        principal = self._caller.rights.principal
        return principal.tenant, principal.name

    def shown(self) -> ConnectionShown:
        """What it is now: gRPC tells nothing of the bytes of the connection below it."""
        tenant, user = self.owner
        return ConnectionShown(
            id=id_of("rocketmq", self.number),
            protocol="rocketmq",
            listener=self._listener,
            peer=self._peer,
            ssl=self._is_encrypted,
            tenant=tenant,
            user=user,
            client_id=self._caller.client_id,
            client=self._client,
            state="moving" if self.is_moving else "open",
            waits_for="",
            connected_s=asyncio.get_running_loop().time() - self._opened_s,
            channels=0,
            consumers=0,
            messages_unacknowledged=len(self.client.renewals),
            recv_oct=0,
            send_oct=0,
        )

    def channels_shown(self) -> Iterator[ChannelShown]:
        """gRPC has none."""
        return iter(())

    def end(self, reason: str) -> None:
        """End the stream: its client opens another, if it may."""
        del reason
        self.ended.set()

    def recheck(self) -> Iterator[None]:
        """See `adapters.base.Holder`."""
        try:
            self._caller.check_admitted()
        except RocketmqError:
            self.was_revoked = True
            self.ended.set()
        return iter(())

    def push(self, command: bytes) -> bool:
        """Send an answer when its turn comes (never waits); False: the stream is being ended."""
        if self.ended.is_set():
            return False
        if self._answers >= TELEMETRY_QUEUE_MAX:
            self._cut()
            return False
        self._answers += 1
        self._commands.put_nowait((command, 0))
        return True

    def ask(self, question: bytes) -> bool:
        """The same for a question; False: too many wait, or the stream is being ended."""
        size = len(question)
        is_full = self._asked_bytes > 0 and self._asked_bytes + size > QUESTION_BYTES_MAX
        if is_full or self.ended.is_set():
            return False
        self._asked_bytes += size
        self._commands.put_nowait((question, size))
        return True

    def stop_writing(self) -> None:
        """The stream has ended: `write` returns once what it writes just now is written."""
        self.ended.set()
        self._commands.put_nowait((b"", 0))

    async def write(self) -> None:
        """Write what is pushed, until the stream ends."""
        try:
            while True:
                command, asked_bytes = await self._commands.get()
                if self.ended.is_set():
                    return
                async with asyncio.timeout(TELEMETRY_WRITE_TIMEOUT_S):
                    await self._call.write(command)
                self._asked_bytes -= asked_bytes
                self._answers -= not asked_bytes
        except TimeoutError:
            self._cut()
        except Exception as error:  # noqa: BLE001 - gRPC's own: the connection is gone
            _log.debug("telemetry stream lost", error=str(error))
            self.ended.set()

    def _cut(self) -> None:
        self.was_cut = True
        self.ended.set()


class Streams:
    """All streams of one adapter."""

    def __init__(self, service: Service, tasks: Tasks) -> None:
        self._service = service
        self._tasks = tasks
        self._open: set[Stream] = set()
        self._moving: Moving[Stream] = Moving(
            lambda each: each.client.key, lambda each: each.client.key[1]
        )
        self._is_draining = False

    def __len__(self) -> int:
        return len(self._open)

    def holders(self) -> list[Stream]:
        """See `adapters.base.Adapter`."""
        return list(self._open)

    def drain(self) -> None:
        """End every stream; later ones end at once."""
        self._is_draining = True
        for stream in self._open:
            stream.ended.set()

    def move(
        self, amount: int, to: Mapping[str, str], consumers_by_key: ConsumersByKey | None
    ) -> int:
        """Have so many clients use another gateway; how many were asked. Those without a stream,
        as after a restart of this server, hear it when they ask for their routes.
        """
        environment = self._service.environment
        clients, now_ms = environment.clients, environment.clock.monotonic_ms()
        # A client with two streams is moving once it was asked by one of them.
        asked = {each.client.key for each in self._open if each.is_moving}
        movable = [each for each in self._open if each.client.key not in asked]
        moved = 0
        for stream in self._moving.chosen(
            movable, amount, consumers_by_key, lambda each: each.client.key, now_ms
        ):
            stream.is_moving = True
            clients.send_elsewhere(stream.client.key, to, now_ms)
            stream.push(wire.RECONNECT)
            moved += 1
        if consumers_by_key is None:
            for client in clients.without_stream(now_ms):
                if moved >= amount:
                    break
                if not clients.is_sent_elsewhere(client.key):
                    clients.send_elsewhere(client.key, to, now_ms)
                    moved += 1
        return moved

    def staying(self, now_ms: int) -> dict[str, int]:
        """Clients that were asked to use another gateway, and go on using this one."""
        clients = self._service.environment.clients
        silent = (each for each in clients.without_stream(now_ms))
        told = (each.key[1] for each in silent if clients.is_sent_elsewhere(each.key))
        return {**dict.fromkeys(islice(told, STAYING_MAX), 1), **self._moving.staying()}

    def tick(self, now_ms: int) -> None:
        """End the streams of clients that use another gateway now."""
        clients = self._service.environment.clients
        for stream in self._open:
            client = stream.client
            is_silent = now_ms - client.seen_ms > MOVED_SILENT_MS
            if is_silent and clients.is_sent_elsewhere(client.key):
                stream.ended.set()

    async def serve(self, call: Call, *, listener: str) -> None:
        """One stream, until either side ends it."""
        environment = self._service.environment
        figures = environment.figures_of[listener]
        try:
            caller = environment.admit(call)
            if self._is_draining:
                return
            account = connect(environment, caller, listener)
        except RocketmqError as error:
            environment.counters.calls_refused += 1
            figures.refuse(error.code.name.lower())
            await call.write(wire.refusal(error))
            return
        figures.entered()
        try:
            await self._serve(caller, call, listener)
        finally:
            figures.left()
            account.disconnected()

    async def _serve(self, caller: Caller, call: Call, listener: str) -> None:
        environment = self._service.environment
        key = (caller.tenant, caller.client_id)
        client = environment.clients.heard_of(key, environment.clock.monotonic_ms())
        peer, library = environment.address_of(call), _library_of(call)
        stream = Stream(
            call, caller, client, listener, peer, library, is_encrypted=call.is_encrypted
        )
        environment.clients.stream_opened(client, id_of("rocketmq", stream.number))
        environment.figures_of[listener].signed_in(stream)
        environment.counters.streams += 1
        self._open.add(stream)
        questions = environment.producers.joined(caller, stream.ask)
        meter = environment.meter
        if meter is not None:
            meter.connection_opened(caller.tenant)
        reading = self._tasks.start(self._read(caller, call, stream, questions))
        writing = self._tasks.start(stream.write())
        try:
            await stream.ended.wait()
            # gRPC takes no status beside a write: the call would never end.
            stream.stop_writing()
            await asyncio.wait((writing,))
        finally:
            reading.cancel()
            writing.cancel()
            environment.producers.left(key, questions)
            environment.clients.stream_closed(client)
            if meter is not None:
                meter.connection_closed(caller.tenant)
            if not stream.is_moving:
                # One that uses another gateway is not there because its old stream was.
                client.seen_ms = environment.clock.monotonic_ms()
            self._open.discard(stream)
            environment.counters.streams_cut += stream.was_cut
            environment.counters.revoked += stream.was_revoked
        _log.info("telemetry stream ended", client=caller.client_id, cut=stream.was_cut)

    async def _read(self, caller: Caller, call: Call, stream: Stream, questions: Questions) -> None:
        """Answer what the client sends, until it ends its side."""
        try:
            while (data := await call.read()) is not None:
                if not stream.push(await self._answer(caller, data, questions)):
                    return
        except Exception as error:  # noqa: BLE001 - gRPC's own, or a bug: the stream ends
            _log.debug("telemetry stream failed", client=caller.client_id, error=str(error))
        finally:
            stream.ended.set()

    async def _answer(self, caller: Caller, data: bytes, questions: Questions) -> bytes:
        try:
            command = parse_telemetry_command(data)
            if not command.HasField("settings"):
                # An answer to a command that the server never gives.
                return wire.OK
            if command.settings.HasField("publishing"):
                await self._service.ask_about(questions, caller, command.settings.publishing)
            shown = await self._service.shown_to(caller, command.settings)
            return client_settings.answer_to(command, self._service.environment.settings, shown)
        except RocketmqError as error:
            return wire.refusal(error)
        except KernelError as error:
            return wire.refusal(from_kernel(error))
