"""Handshakes that come to nothing are told: why, on which listener, a bounded number of times."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import structlog
import uvloop
from structlog.testing import capture_logs

from adapters.line_budget import PERIOD_MS
from auth.private_files.certificates import open_loopback_certificate
from auth.private_files.tls import server_context
from gateway.access.tls_failures import LINES_MAX, TlsFailures
from gateway.admin.metrics.process_metrics import NodeCollector, render
from kernel.store.drivers.system import SystemClock
from tests.gateway.test_turned_away import Hand

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class Nothing:
    """A collector of nothing."""

    def collect(self) -> list[Any]:
        return []


def client_context(**changes: Any) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    for name, value in changes.items():
        setattr(context, name, value)
    return context


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """In memory, until either end gives up."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(6):
        for end in list(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                ends.remove(end)


@pytest.fixture
def server(tmp_path: Path) -> ssl.SSLContext:
    return server_context(open_loopback_certificate(tmp_path, datetime.now(UTC)))


@pytest.mark.parametrize("make_loop", LOOPS.values(), ids=LOOPS.keys())
def test_what_is_no_tls_is_told_and_what_works_is_not(
    server: ssl.SSLContext, make_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    failures = TlsFailures(structlog.get_logger(), SystemClock())

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        context = failures.watch(server, "sqs.https")
        listener = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0, ssl=context)
        port = listener.sockets[0].getsockname()[1]
        for hello in (b"GET / HTTP/1.1\r\n\r\n", b"AMQP\0\0\x09\x01"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(hello)
            assert await reader.read() == b""
            writer.close()
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context())
        writer.close()
        listener.close()

    with capture_logs() as lines, asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(scenario())
    assert [(each["listener"], each["openssl"]) for each in lines] == [
        ("sqs.https", "HTTP_REQUEST"),
        ("sqs.https", "WRONG_VERSION_NUMBER"),
    ]
    assert all("not TLS" in each["reason"] for each in lines)
    assert b'weir_tls_failures_total{listener="sqs.https"} 2.0' in b"".join(
        render(NodeCollector(Nothing(), tls_failures=failures))  # type: ignore[arg-type]
    )


def test_who_does_not_trust_the_listener_and_who_is_too_old(server: ssl.SSLContext) -> None:
    failures = TlsFailures(structlog.get_logger(), Hand())
    context = failures.watch(server, "amqp.tls")
    with capture_logs() as lines:
        shake_hands(context, client_context(verify_mode=ssl.CERT_REQUIRED))
        old = client_context()
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="deprecated"):
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        shake_hands(context, old)
    reasons = [each["reason"] for each in lines]
    assert reasons == [
        "the client does not trust this listener's certificate",
        "the client speaks no TLS 1.2 or later",
    ]


def test_a_reason_without_words_is_told_by_its_name() -> None:
    failures = TlsFailures(structlog.get_logger(), Hand())
    with capture_logs() as lines:
        failures._failed("amqp.tls", ssl.SSLError(1, "[SSL: ODD] odd"))
    assert lines[0]["reason"] == lines[0]["openssl"] == "SSLError"


def test_each_listener_and_reason_has_a_line_a_minute_and_all_together_a_few() -> None:
    clock = Hand()
    failures = TlsFailures(structlog.get_logger(), clock)
    error = ssl.SSLError(1, "anything")
    with capture_logs() as lines:
        for number in range(2 * LINES_MAX):
            for _ in range(2):
                failures._failed(f"listener {number}", error)
        assert len(lines) == LINES_MAX
        clock.now_ms = PERIOD_MS
        failures._failed("listener 0", error)
    assert sum(each["unlogged"] for each in lines) == 3 * LINES_MAX
    assert failures.counts["listener 0"] == 3
