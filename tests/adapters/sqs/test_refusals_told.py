"""What a listener refuses is told to the operator: a line and a count, by reason."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from adapters.sqs.error_codes import ERROR_KINDS, SqsError
from adapters.sqs.http.refusal import Refusal, of_error
from adapters.sqs.http.request_response import REQUEST_BYTES_MAX
from adapters.sqs.settings import REQUEST_S_MAX
from gateway.admin.metrics.process_metrics import NodeCollector, render
from tests.adapters.in_process import KEY_ID
from tests.adapters.sqs.service import Service, running_service
from tests.adapters.sqs.test_service_http import get, signed

TARGET = {
    "X-Amz-Target": "AmazonSQS.ListQueues",
    "Content-Type": "application/x-amz-json-1.0",
}


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with running_service(tmp_path) as running:
        yield running


async def post(service: Service, headers: dict[str, str], body: bytes = b"{}") -> int:
    status, _, _ = await asyncio.to_thread(get, service.url, headers, body)
    return status


async def raw(service: Service, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    writer.write(data)
    answer = await reader.read()
    writer.close()
    return answer


async def refused(service: Service, reason: Refusal) -> int:
    return service.adapter.statistics().refused["sqs.http", reason.value]


async def test_each_reason_has_a_count_and_a_line_with_the_access_key(service: Service) -> None:
    good = signed(service.url, b"{}", **TARGET)
    wrong = signed(service.url, b"{}", secret="wrong", **TARGET)
    unknown = {name: value.replace(KEY_ID, "NOBODY") for name, value in good.items()}
    with capture_logs() as lines:
        assert await post(service, good) == 200
        assert await post(service, wrong) == 403
        assert await post(service, unknown) == 403
        assert await post(service, TARGET) == 403
        nonsense = signed(service.url, b"{", **TARGET)
        assert await post(service, nonsense, b"{") == 400
        assert (await raw(service, b"no http\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
        large = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n"
        assert (await raw(service, large % (REQUEST_BYTES_MAX + 1))).startswith(b"HTTP/1.1 413 ")
        service.clock.wall_ahead_ms = 16 * 60_000
        assert await post(service, good) == 400
    told = [
        (each["reason"], each.get("access_key")) for each in lines if each["event"] == "refused"
    ]
    assert told == [
        ("signature", KEY_ID),
        ("unknown_key", "NOBODY"),
        ("unsigned", ""),
        ("malformed", KEY_ID),
        ("too_large", ""),
        ("skew", KEY_ID),
    ]
    assert {each["listener"] for each in lines if each["event"] == "refused"} == {"sqs.http"}
    secrets = good["Authorization"].rpartition("Signature=")[2]
    assert secrets not in str(lines)
    below: Any = SimpleNamespace(collect=list)
    text = b"".join(render(NodeCollector(below, [service.adapter]))).decode()
    for reason, count in (("signature", 1), ("malformed", 2), ("skew", 1), ("slow", 0)):
        row = f'weir_refused_total{{listener="sqs.http",reason="{reason}"}} {float(count)}'
        assert row in text


async def test_a_flood_costs_a_few_lines_and_every_one_is_counted(service: Service) -> None:
    with capture_logs() as lines:
        for _ in range(100):
            await post(service, TARGET)
    assert len([each for each in lines if each["event"] == "refused"]) == 1
    assert await refused(service, Refusal.UNSIGNED) == 100


async def test_a_request_that_does_not_come_in_time_is_answered_with_408(service: Service) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    headers = signed(service.url, b"{}", **TARGET) | {"Host": "h", "Content-Length": "100"}
    lines = [f"{name}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join(["POST / HTTP/1.1", *lines, "", "half"]).encode())
    while not service.adapter.statistics().connections:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    service.adapter.ticks += REQUEST_S_MAX + 1
    begun = time.monotonic()
    answer = await asyncio.wait_for(reader.read(), 5)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert time.monotonic() - begun < 3
    writer.close()
    assert await refused(service, Refusal.SLOW) == 1


def test_every_error_of_a_client_that_is_not_admitted_has_a_reason() -> None:
    for kind in ERROR_KINDS:
        assert (of_error(SqsError(kind)) is not None) is kind.sender
