"""`weir bench mqtt` against our own adapter: figures, and what it says of bad brokers."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.load.errors import BenchError
from benchmarks.load.mqtt_client import parse_url
from benchmarks.load.mqtt_load import rows_of, run_load
from benchmarks.load.mqtt_plan import Load, MqttOptions
from tests.adapters.mqtt.broker import serving


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("kept", [False, True])
async def test_pairs_are_counted_and_verified(
    tmp_path: Path, version: int, qos: int, kept: bool
) -> None:
    async with serving(tmp_path) as broker:
        options = MqttOptions(
            f"mqtt://guest:guest@127.0.0.1:{broker.port}",
            version=version,
            qos=qos,
            kept=kept,
            producers=2,
            window=5,
            duration_s=0.3,
            warmup_s=0.1,
            pids=[os.getpid()],
        )
        report = await run_load(options)
        assert report.ok
        assert report.received == report.expected > 0
        assert report.delivered_per_s > 0
        assert report.latency_p50_us > 0
        shown = dict(rows_of(report))
        assert "0 lost" in shown["verified"]


async def test_a_fan_out_waits_for_all(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        url = f"mqtt://guest:guest@127.0.0.1:{broker.port}"
        options = MqttOptions(url, Load.FANOUT, subscribers=7, duration_s=0.3, warmup_s=0.1)
        report = await run_load(options)
        assert report.ok
        assert report.received == report.expected
        assert report.received % 7 == 0
        assert report.server_cpu_us_per_message == -1


async def test_idle_connections_are_counted(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        url = f"mqtt://guest:guest@127.0.0.1:{broker.port}"
        options = MqttOptions(url, Load.IDLE, connections=50, kept=True, pids=[os.getpid()])
        report = await run_load(options)
        assert report.received == 50
        assert report.connects_per_s > 0
        assert "memory" in dict(rows_of(report))
        async with asyncio.timeout(5):
            while broker.adapter.statistics().connections:
                await asyncio.sleep(0.01)


async def test_a_broker_that_refuses_or_is_not_there_is_said(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        options = MqttOptions(f"mqtt://guest:wrong@127.0.0.1:{broker.port}")
        with pytest.raises(BenchError, match="refuses the connection with code 134"):
            await run_load(options)
        port = broker.port
    with pytest.raises(BenchError, match="cannot connect"):
        await run_load(replace(options, url=f"mqtt://127.0.0.1:{port}"))


@pytest.mark.parametrize("url", ["amqp://h", "mqtt://", "mqtt://h:x"])
def test_what_is_no_address_is_said(url: str) -> None:
    with pytest.raises(BenchError, match="not an address of MQTT"):
        parse_url(url)


def test_an_address_has_parts_and_a_default() -> None:
    assert parse_url("mqtt://a%40b:p%2F@h") == ("h", 1883, "a@b", b"p/")
