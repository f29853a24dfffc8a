"""Faults, seen by the real client: a disk that stalls, a gateway that is killed or told to end."""

from __future__ import annotations

import subprocess
import threading
import time
from pathlib import Path

import pytest

from adapters.rocketmq.settings import RocketmqSettings
from gateway.serving.node import DRAIN_SECONDS
from tests.adapters.rocketmq.support import HeldDisk, Wire, broker_in_thread
from tests.adapters.rocketmq.test_real_client import ended, start
from tests.gateway.serving import Process, serving

pytestmark = pytest.mark.interop

STALL_S = 2.0


def half(process: subprocess.Popen[str]) -> None:
    """Wait until a scenario has done its first half."""
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "half"


def address_of(node: Process) -> str:
    return f"127.0.0.1:{node.listeners['rocketmq.grpc']}"


def test_no_ok_comes_before_the_disk_has_it(tmp_path: Path) -> None:
    disk = HeldDisk(tmp_path / "data")
    settings = RocketmqSettings()
    with broker_in_thread(tmp_path / "data", settings, disk=disk) as broker:
        broker.topic("stall", queues=2)
        with start("stall", broker.address, tmp_path) as process:
            half(process)
            disk.may_sync.clear()
            released: list[float] = []

            def release() -> None:
                released.append(time.monotonic())
                disk.may_sync.set()

            timer = threading.Timer(STALL_S, release)
            timer.start()
            answered = ended(process, "\n")
            timer.join()
    for name in ("send", "ack", "change"):
        (at,) = answered[name]
        assert at >= released[0], f"{name} was answered before the sync"
    for name in ("heartbeat", "route"):
        early = [at for at in answered[name] if at < released[0]]
        assert len(early) >= 2, f"{name} waited for the disk: {answered}"


def test_kill_under_load_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with serving(data) as node:
        assert node.api("POST", "/topics", {"name": "flood", "queues": 4}).status == 201
        with start("flood", address_of(node), tmp_path) as process:
            assert process.stdout is not None
            acknowledged = [int(process.stdout.readline()) for _ in range(200)]
            node.kill()
            process.kill()
            rest = process.stdout.read().splitlines()
            acknowledged += [int(line) for line in rest if line.isdigit()]
    with serving(data) as node:
        wire = Wire(address_of(node))
        found: list[int] = []
        while (got := wire.receive("flood", "all", wait_s=1)).messages:
            found += [int(body) for body in got.bodies]
        wire.close()
    assert set(acknowledged) <= set(found)
    assert len(found) == len(set(found)), "a message was stored twice"


def test_sigterm_ends_polls_and_streams_and_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with serving(data) as node:
        assert node.api("POST", "/topics", {"name": "idle", "queues": 2}).status == 201
        with start("idle", address_of(node), tmp_path) as process:
            half(process)
            began = time.monotonic()
            assert node.terminate() == 0
            assert time.monotonic() - began < DRAIN_SECONDS / 2
            assert ended(process, "\n") == []
        drained = [line for line in node.logged() if line["event"] == "drained"]
        assert "rocketmq" in {line["adapter"] for line in drained}
