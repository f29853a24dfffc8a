"""One connection without a socket: who is read, who is answered, who is let go."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import pytest
import structlog

from adapters.base import ListenerAddress
from adapters.fair_scheduler import FairScheduler
from adapters.lingering import LINGERING, Lingering
from adapters.listener_figures import ListenerFigures
from adapters.memory import GatewayMemory
from adapters.refused import Refused
from adapters.sqs.connection import HttpConnection
from adapters.sqs.environment import Counters
from adapters.sqs.http.refusal import Refusal
from adapters.sqs.http.request_response import HttpResponse
from adapters.transport import Tasks
from kernel.common.fairness import WriteRounds
from kernel.store.drivers.system import SystemClock

GET = b"GET /%d HTTP/1.1\r\nHost: h\r\n\r\n"


class Transport:
    """Keeps what is asked of it."""

    def __init__(self) -> None:
        self.written = b""
        self.is_reading = True
        self.ended: list[str] = []
        self.protocol: asyncio.BaseProtocol | None = None

    def set_write_buffer_limits(self, high: int) -> None: ...

    def write(self, data: bytes) -> None:
        self.written += data

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended.append("eof")

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def close(self) -> None:
        self.ended.append("close")

    def abort(self) -> None:
        self.ended.append("abort")
        if self.protocol is not None:
            self.protocol.connection_lost(None)

    def is_closing(self) -> bool:
        return "abort" in self.ended or "close" in self.ended

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str) -> object:
        return ("::1", 80, 0, 0) if name == "sockname" else None


class Application:
    """Answers each request when the test says so."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.answers: asyncio.Queue[HttpResponse] = asyncio.Queue()

    def refusal_of(self, request) -> None:
        return None

    def serve(self, request, peer, answered, *, is_whole: bool) -> Coroutine[object, object, None]:
        self.asked.append(request.raw_path)

        async def answer() -> None:
            answered(await self.answers.get())

        return answer()


class Host:
    def __init__(self) -> None:
        self.application = Application()
        self.tasks = Tasks(asyncio.get_running_loop())
        self.counters = Counters()
        self.refused = Refused(structlog.get_logger(), SystemClock(), "sqs", ["http"], Refusal)
        self.ticks = 0
        self.date = b"now"
        self.has_room = True
        self.memory_of = {"http": GatewayMemory(SystemClock()).listener("sqs", "http")}
        self.figures_of = {"http": ListenerFigures("sqs", "http", SystemClock())}
        self.turns = FairScheduler(
            WriteRounds(),
            asyncio.get_running_loop().call_soon,
            asyncio.get_running_loop().call_later,
            lambda: 0,
        )
        self.lost: list[HttpConnection] = []
        self.signed = 0

    def entered(self, connection: HttpConnection) -> bool:
        return self.has_room

    def known(self, connection: HttpConnection) -> None:
        self.signed += 1

    def left(self, connection: HttpConnection) -> None:
        self.lost.append(connection)

    async def answer(self) -> None:
        self.application.answers.put_nowait(HttpResponse(200, [], b"ok"))
        for _ in range(4):
            await asyncio.sleep(0)


@pytest.fixture
async def host() -> Host:
    return Host()


@pytest.fixture
async def transport() -> Transport:
    return Transport()


@pytest.fixture
async def connection(host: Host, transport: Transport):
    connection = HttpConnection(
        host, ListenerAddress("http", "127.0.0.1", 0), asyncio.get_running_loop()
    )
    connection.connection_made(transport)
    yield connection
    await host.tasks.stop()
    LINGERING.end(connection.loop)


async def test_nothing_is_read_while_a_request_waits_behind_another(
    host: Host, connection: HttpConnection, transport: Transport
) -> None:
    connection.data_received(GET % 1)
    await asyncio.sleep(0)
    assert transport.is_reading, "so that a client which goes away is seen"
    connection.data_received(GET % 2 + GET % 3)
    assert not transport.is_reading
    await host.answer()
    assert (host.application.asked, transport.is_reading) == ([b"/1", b"/2"], False)
    await host.answer()
    assert (host.application.asked, transport.is_reading) == ([b"/1", b"/2", b"/3"], True)
    await host.answer()
    assert transport.written.count(b"HTTP/1.1 200 OK") == 3


async def test_requests_that_are_answered_at_once_are_answered_in_order(
    host: Host, connection: HttpConnection, transport: Transport
) -> None:
    def serve(request, peer, answered, *, is_whole: bool) -> None:
        answered(HttpResponse(200, [], request.raw_path + b";"))

    host.application.serve = serve
    many = 2_000  # more than calls may be nested
    connection.data_received(b"".join(GET % number for number in range(many)))
    for _ in range(many + 2):
        await asyncio.sleep(0)
    bodies = [part.split(b";")[0] for part in transport.written.split(b"\r\n\r\n")[1:]]
    assert bodies == [b"/%d" % number for number in range(many)]
    assert transport.is_reading


async def test_a_client_that_does_not_read_is_not_answered_further(
    host: Host, connection: HttpConnection, transport: Transport
) -> None:
    connection.pause_writing()
    connection.data_received(GET % 1)
    await asyncio.sleep(0)
    assert (host.application.asked, transport.is_reading) == ([], False)
    connection.resume_writing()
    await host.answer()
    assert host.application.asked == [b"/1"]


async def test_a_client_that_reads_nothing_is_closed(
    host: Host, connection: HttpConnection, transport: Transport
) -> None:
    connection.data_received(GET % 1)
    connection.pause_writing()
    await host.answer()
    connection.data_received(GET % 2)
    host.ticks = 31
    connection.sweep(30, 30)
    assert transport.ended == ["abort"]


async def test_a_request_under_way_is_not_swept(
    host: Host, connection: HttpConnection, transport: Transport
) -> None:
    connection.data_received(GET % 1)
    await asyncio.sleep(0)
    host.ticks = 1000
    connection.sweep(30, 75)
    assert transport.ended == []
    await host.answer()
    connection.sweep(30, 75)
    assert transport.ended == [], "idle since now"


@pytest.mark.parametrize(("ticks", "is_kept"), [(30, True), (31, False)])
async def test_bytes_that_dribble_in_do_not_prolong_a_request(
    host: Host, connection: HttpConnection, transport: Transport, ticks: int, is_kept: bool
) -> None:
    connection.data_received(b"G")
    host.ticks = ticks
    for piece in (b"E", b"T", b" ", b"/", b" "):
        connection.data_received(piece)
    connection.sweep(30, 75)
    assert (transport.ended == []) is is_kept
    assert host.counters.connections_refused == (not is_kept)
    assert host.refused.total(Refusal.SLOW) == (not is_kept)
    assert transport.written.startswith(b"HTTP/1.1 408 ") is not is_kept


async def test_a_slow_client_is_told_once_and_then_lingers(
    host: Host, connection: HttpConnection, transport: Transport
) -> None:
    connection.data_received(b"GET / HTTP/1.1\r\n")
    for ticks in (31, 32, 62):
        host.ticks = ticks
        connection.sweep(30, 75)
        assert transport.ended == ["eof"]
    await asyncio.sleep(0)
    assert host.lost == [connection]
    assert host.refused.total() == 1


async def test_a_client_that_never_says_anything_is_dropped_without_an_answer(
    host: Host, connection: HttpConnection, transport: Transport
) -> None:
    host.ticks = 31
    connection.sweep(30, 75)
    assert (transport.ended, transport.written) == (["abort"], b"")
    assert host.refused.total(Refusal.SLOW) == 1


async def test_a_refused_client_is_listened_to_by_nobody_who_acts_on_it(
    host: Host, connection: HttpConnection, transport: Transport
) -> None:
    connection.data_received(b"nonsense")
    assert transport.written.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close" in transport.written
    assert transport.ended == ["eof"]
    assert isinstance(transport.protocol, Lingering)
    transport.protocol.data_received(GET % 1)
    connection.sweep(30, 75)
    assert (transport.ended, host.application.asked) == (["eof"], [])
    assert host.counters.connections_refused == 1
    transport.abort()


async def test_who_is_over_the_limit_is_dropped_unread(host: Host, transport: Transport) -> None:
    host.has_room = False
    connection = HttpConnection(
        host, ListenerAddress("http", "127.0.0.1", 0), asyncio.get_running_loop()
    )
    connection.connection_made(transport)
    connection.data_received(GET % 1)
    assert (transport.ended, host.counters.connections_refused) == (["abort"], 1)
    assert host.refused.total(Refusal.CONNECTIONS) == 1
    assert host.application.asked == []


async def test_when_shut_down_an_idle_connection_goes_at_once_and_a_busy_one_after_its_answer(
    host: Host, connection: HttpConnection, transport: Transport
) -> None:
    connection.data_received(GET % 1)
    await asyncio.sleep(0)
    connection.shut_down()
    assert transport.ended == []
    await host.answer()
    assert b"connection: close" in transport.written
    assert transport.ended == ["eof"]
    LINGERING.end(asyncio.get_running_loop())
    assert transport.ended == ["eof", "abort"]


async def test_the_address_reached_is_one_of_a_url(connection: HttpConnection) -> None:
    assert connection.local_address == "[::1]:80"


async def test_beside_another_tenant_a_request_is_served_in_its_turn(
    connection: HttpConnection, host: Host
) -> None:
    host.turns.sends(host.turns.tenant("other"))
    connection.belongs_to_tenant("own")
    assert host.turns.is_shared
    connection.data_received(GET % 1 + GET % 2)
    assert host.turns.waiting == 1
    await asyncio.sleep(0)
    assert host.application.asked == [b"/1"]
    await host.answer()
    assert host.application.asked == [b"/1", b"/2"]


async def test_a_request_whose_client_has_gone_is_not_served_in_its_turn(
    connection: HttpConnection, host: Host
) -> None:
    host.turns.sends(host.turns.tenant("other"))
    connection.belongs_to_tenant("own")
    connection.data_received(GET % 1)
    connection.connection_lost(None)
    await asyncio.sleep(0)
    assert host.application.asked == []
    assert host.turns.waiting == 0
