"""One HTTP connection: requests in, answers out, one at a time and in order.

    bytes -> HttpReader -> waiting requests -> the application serves the first -> bytes -> the next

The driver decides nothing but when to let go of a client: one that sends too much, too slowly, or
is over the adapter's limit. While an answer is prepared the socket is still read, so that a client
that goes away ends its long poll; but once another request waits behind it, nothing more is read
until that one is answered. So a connection holds what one read can complete, and no more. SDKs
send no request before the last one's answer.
"""

from __future__ import annotations

from collections import deque
from http import HTTPStatus
from itertools import count
from typing import TYPE_CHECKING, Final, Protocol

from adapters.connections import (
    CLIENT_CHARACTERS_MAX,
    ChannelShown,
    ConnectionShown,
    connected_user,
    id_of,
)
from adapters.pauses import Pause
from adapters.transport import StreamProtocol

from .http import refusal
from .http.refusal import Refusal
from .http.request_reader import HttpReader
from .http.request_response import HttpResponse

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Iterator

    from adapters.base import ListenerAddress
    from adapters.fair_scheduler import FairScheduler
    from adapters.listener_figures import ListenerFigures
    from adapters.memory import ListenerMemory
    from adapters.refused import Refused
    from adapters.transport import Tasks
    from auth.principal import Principal
    from kernel.api.tracing import ConnectedUser
    from kernel.quotas.account import Account

    from .app import SqsApplication
    from .environment import Counters
    from .http.request_reader import Arrived, HttpFault

_PIPELINE: Final = "pipeline"
"""Why reading is held: requests wait for their answers."""

REQUEST_COST_BYTES: Final = 4 * 1024
"""What a request costs beside others' bytes, however small it is: its signature is looked at."""

_REFUSED: Final = 400
"""The first status of those that say no."""

_NUMBERS: Final = count(1)
"""Of connections."""

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\ndate: ".encode()
    for status in HTTPStatus
}
_CLOSE: Final = b"\r\nconnection: close\r\n\r\n"
_KEEP: Final = b"\r\n\r\n"


class ConnectionHost(Protocol):
    """What a connection asks of its adapter."""

    application: SqsApplication
    tasks: Tasks
    counters: Counters
    refused: Refused[Refusal]
    ticks: int
    """Seconds since the adapter started."""
    date: bytes
    """The Date header's value now."""
    memory_of: dict[str, ListenerMemory]
    """The budgets of the gateway's memory, by listener."""
    figures_of: dict[str, ListenerFigures]
    """By listener."""
    turns: FairScheduler
    """Whose turn it is."""

    def entered(self, connection: HttpConnection) -> bool:
        """A connection has opened; False: there are too many."""

    def known(self, connection: HttpConnection) -> None:
        """A request of it was carried out: whoever sends them has signed one."""

    def left(self, connection: HttpConnection) -> None:
        """A connection has closed."""


class HttpConnection(StreamProtocol):
    """See the module. `environment.Peer` of its requests."""

    def __init__(
        self, host: ConnectionHost, listener: ListenerAddress, loop: AbstractEventLoop
    ) -> None:
        super().__init__(
            loop, host.memory_of[listener.name], host.turns, host.figures_of[listener.name]
        )
        self._host = host
        self._reader = HttpReader()
        self._waiting: deque[Arrived] = deque()
        self._answering: Arrived | None = None
        self._to_serve: Arrived | None = None
        """What is being answered, until it is its turn beside other tenants."""
        self._tenant = ""
        self.keeps_alive = True
        """Whether it stays open behind the next answer."""
        self._is_idle = False
        self._is_known = False
        self._since_s = host.ticks
        """When the request that is being read began, or when the last answer was given."""
        self._lost_action: Callable[[], object] | None = None
        self._pause: Pause | None = None
        self._counted_by: Account | None = None
        self._client = ""
        """What the client calls itself, in the first request that was signed."""
        self._connected_user: ConnectedUser | None = None
        """Of the last request that was noted."""
        self.is_lost = False
        self.listener = listener.name
        self.scheme = "http" if listener.tls is None else "https"
        self.consumer_key = next(_NUMBERS)

    # --- environment.Peer -------------------------------------------------------------------

    @property
    def local_address(self) -> str:
        """Address and port that the client reached, as in a URL."""
        name = self.transport.get_extra_info("sockname") if self.transport is not None else None
        host, port = name[:2] if isinstance(name, tuple) else ("localhost", 0)
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def pause(self, delay_ms: int) -> None:
        """See `environment.Peer`."""
        if self._pause is None:
            self._pause = Pause(self, self.loop.call_later, self._after_pause, self.abort)
        self._pause.begin(delay_ms)

    @property
    def is_counted(self) -> bool:
        """See `environment.Peer`."""
        return self._counted_by is not None

    def connected_user(self, principal: Principal) -> ConnectedUser:
        """See `environment.Peer`."""
        known, owner = self._connected_user, (principal.tenant, principal.name)
        if known is None or known[:2] != owner:
            known = self._connected_user = connected_user("sqs", owner, self.peer, self.number)
        return known

    def belongs_to(self, account: Account) -> str | None:
        """See `environment.Peer`."""
        limit = account.connected()
        if limit is None:
            self._counted_by = account
            if self._answering is not None:
                agent = self._answering.request.header(b"user-agent") or b""
                self._client = agent[:CLIENT_CHARACTERS_MAX].decode("latin-1")
        else:
            self.keeps_alive = False
        return limit

    def _after_pause(self) -> int:
        # So long it could not be heard: what comes now is not late.
        self._since_s = self._host.ticks
        return 0

    def when_lost(self, action: Callable[[], object] | None) -> None:
        """See `environment.Peer`; one slot, since one request is answered at a time."""
        self._lost_action = action

    # --- StreamProtocol ---------------------------------------------------------------------

    def opened(self) -> None:
        """Called once."""
        if not self._host.entered(self):
            self.crowded_out()

    # --- adapters.connections.OpenConnection ------------------------------------------------

    @property
    def owner(self) -> tuple[str, str]:
        """Of the first request that was signed: which is nearly always all of them."""
        account = self._counted_by
        return ("", "") if account is None else (account.tenant, account.user)

    def shown(self) -> ConnectionShown:
        """What it is now."""
        tenant, user = self.owner
        return ConnectionShown(
            id=id_of("sqs", self.number),
            protocol="sqs",
            listener=self.listener,
            peer=self.peer,
            ssl=self.scheme == "https",
            tenant=tenant,
            user=user,
            client_id="",
            client=self._client,
            state="answering" if self._answering else "idle" if self._is_idle else "reading",
            waits_for=self.waits_for,
            connected_s=self.loop.time() - self.opened_s,
            channels=0,
            consumers=0,
            messages_unacknowledged=0,
            recv_oct=self.bytes_in,
            send_oct=self.bytes_out,
        )

    def channels_shown(self) -> Iterator[ChannelShown]:
        """HTTP has none."""
        return iter(())

    def end(self, reason: str) -> None:
        """Close it: HTTP has no word for why. What is being carried out is, unanswered."""
        del reason
        self.abort()

    def crowded_out(self) -> None:
        """There are too many connections, and it has to go."""
        self._note(Refusal.CONNECTIONS)
        self.abort()

    def received(self, data: bytes) -> None:
        """One socket read brought these bytes."""
        reader = self._reader
        was_midway = reader.is_midway
        arrived = reader.feed(data)
        if reader.is_midway:
            head = reader.take_head()
            if head is not None and self._host.application.refusal_of(head) is not None:
                arrived += reader.cut_short()
        if reader.is_midway and (arrived or not was_midway):
            self._since_s = self._host.ticks
            self._is_idle = False
        if arrived or reader.fault is not None or reader.awaits_continue:
            self._waiting.extend(arrived)
            self._go_on()
            if self._waiting:
                self.hold_reading(_PIPELINE)
        unfinished = reader.unfinished_bytes
        if unfinished or self.has_input:
            self.hold_input(unfinished)

    @property
    def unfinished_bytes(self) -> int:
        """See `StreamProtocol`."""
        return self._reader.unfinished_bytes

    def refuse_input(self) -> None:
        """See `StreamProtocol`: 503, which clients try again."""
        self._reader.give_up(503, "Too many requests are not complete; try again.")
        self._go_on()

    def backlog_bytes(self) -> int:
        """Requests that wait until their client reads the answers before."""
        return sum(len(each.request.body) for each in self._waiting)

    def writing_resumed(self) -> None:
        """The client has read what it was sent."""
        self._go_on()

    def closed(self, error: Exception | None) -> None:
        """The connection is gone."""
        self.is_lost = True
        self._waiting.clear()
        self._to_serve = None
        if self._counted_by is not None:
            self._counted_by.disconnected()
        if self._lost_action is not None:
            self._lost_action()
        self._host.left(self)

    # --- answering --------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Answer the next request; when none is left, what the reader has to say after them."""
        if self._answering or self._closing or self.is_writing_paused:
            return
        if self._waiting:
            self._answering = arrived = self._waiting.popleft()
            if self.turns.is_shared:
                self._to_serve = arrived
                self.wait_for_turn()
            else:
                # Not at once: a commit that is on the disk, and is waited for, comes first.
                self.loop.call_soon(self._serve, arrived)
            if not self._waiting:
                self.release_reading(_PIPELINE)
        elif self._reader.fault is not None:
            self._refuse(self._reader.fault)
        elif self._reader.awaits_continue:
            self._reader.awaits_continue = False
            self.out.append(_CONTINUE)
            self.write_soon()

    def has_part(self) -> bool:
        """See `fair_scheduler.Reading`."""
        return self._to_serve is not None or super().has_part()

    def take_part(self, most_bytes: int) -> int:
        """See `fair_scheduler.Reading`: a request, or bytes that may complete one."""
        arrived, self._to_serve = self._to_serve, None
        if arrived is None:
            return super().take_part(most_bytes)
        self._serve(arrived)
        size = len(arrived.request.body)
        self.turns.submits(self._tenant_share, size)
        return max(size, REQUEST_COST_BYTES)

    def belongs_to_tenant(self, tenant: str) -> None:
        """See `environment.Peer`."""
        if tenant != self._tenant:
            self._tenant = tenant
            self.shares_as(tenant)

    def _serve(self, arrived: Arrived) -> None:
        work = self._host.application.serve(
            arrived.request, self, self._answered, is_whole=arrived.is_whole
        )
        if work is not None:
            self._host.tasks.start(work)

    def _answered(self, response: HttpResponse | None) -> None:
        """The request that is being answered has its answer; None: nobody is left to get it."""
        arrived, self._answering = self._answering, None
        assert arrived is not None
        if response is None or self.is_lost:
            self.abort()
            return
        if not self._is_known and response.status < _REFUSED:
            self._is_known = True
            self._host.known(self)
        keeps_alive = arrived.keeps_alive and self.keeps_alive
        is_head = arrived.request.method == "HEAD"
        self.out.append(encode(response, self._host.date, keeps_alive=keeps_alive, is_head=is_head))
        if not (keeps_alive and arrived.is_whole):
            # What is still sent of a request that is refused by its head is dropped (`lingering`).
            self.close()
        else:
            self._since_s = self._host.ticks
            self._is_idle = not self._reader.is_midway
            self.write_soon()
            self._go_on()

    # --- letting go -------------------------------------------------------------------------

    def shut_down(self) -> None:
        """Close as soon as no request is under way."""
        self.keeps_alive = False
        if not (self._answering or self._waiting or self._reader.is_midway):
            self.close()

    def sweep(self, request_s_max: int, idle_s_max: int) -> None:
        """Close the connection of a client that takes longer than that for a request, or between
        two.
        """
        if self._answering or self._closing or self.is_waiting_for_turn:
            return
        waited_s = self._host.ticks - self._since_s
        if waited_s > (idle_s_max if self._is_idle else request_s_max):
            if not self._is_idle:
                if self._reader.is_midway and not (self._waiting or self.is_writing_paused):
                    self._reader.give_up(408, "The request did not come in time.")
                    self._go_on()
                    return
                self._note(Refusal.SLOW)
            self.abort()

    def _refuse(self, fault: HttpFault) -> None:
        """Answer what is no request."""
        self._note(refusal.of_status(fault.status), message=fault.message)
        body = fault.message.encode()
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", b"%d" % len(body)),
        ]
        response = HttpResponse(fault.status, headers, body)
        self.out.append(encode(response, self._host.date, keeps_alive=False, is_head=False))
        self.close()

    def _note(self, reason: Refusal, **more: object) -> None:
        self._host.counters.connections_refused += 1
        self._host.refused.note(self.listener, reason, self.peer, **more)


def encode(response: HttpResponse, date: bytes, *, keeps_alive: bool, is_head: bool) -> bytes:
    """A response as it goes over the wire (RFC 9112)."""
    parts = [_STATUS_LINES[response.status], date]
    for name, value in response.headers:
        parts += (b"\r\n", name, b": ", value)
    parts.append(_KEEP if keeps_alive else _CLOSE)
    if not is_head:
        parts.append(response.body)
    return b"".join(parts)
