"""What systemd is told of each role: that it serves, when it does, and that it stops."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

import pytest

from gateway.process.service_manager import SERVING, STOPPING, VARIABLE, tell_manager
from tests.gateway.cluster import Cluster
from tests.gateway.serving import START_SECONDS, launched

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.gateway.serving import Process


@contextlib.contextmanager
def manager(address: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address)
        listener.settimeout(START_SECONDS)
        yield listener


def hears_both(listener: socket.socket, process: Process) -> None:
    """READY once it serves, which it says before; STOPPING once it is told to."""
    assert listener.recv(1_000).decode() == SERVING
    assert process.http("GET", "/readyz", token=None).status == 200
    process.serves()
    assert process.terminate() == 0
    assert listener.recv(1_000).decode() == STOPPING


def test_one_node_says_when_it_serves_and_when_it_stops(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with (
        manager(address) as listener,
        launched(tmp_path / "data", variables={VARIABLE: address}) as node,
    ):
        hears_both(listener, node)


def test_a_gateway_serves_once_it_has_a_store_and_a_store_before_it_is_let_in(
    tmp_path: Path,
) -> None:
    addresses = [str(tmp_path / name) for name in ("of-store", "of-gateway")]
    with (
        contextlib.ExitStack() as stack,
        manager(addresses[0]) as of_store,
        manager(addresses[1]) as of_gateway,
    ):
        cluster = Cluster(tmp_path, stack, stores=(1, 2))
        gateway = cluster.start_gateway("a", variables={VARIABLE: addresses[1]})
        gateway.wait_for("waiting for the cluster")
        cluster.found()
        cluster.start_store(1).serves()
        # `systemctl start weir-store` comes before `weir cluster join`.
        second = cluster.start_store(2, variables={VARIABLE: addresses[0]})
        assert of_store.recv(1_000).decode() == SERVING
        hears_both(of_gateway, gateway)
        assert second.terminate() == 0
        assert of_store.recv(1_000).decode() == STOPPING


def test_a_start_that_fails_says_neither(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    (tmp_path / "data").write_text("a file")
    with (
        manager(address) as listener,
        launched(tmp_path / "data", variables={VARIABLE: address}) as node,
    ):
        assert node.process.wait(START_SECONDS) == 1
        listener.settimeout(0)
        with pytest.raises(BlockingIOError):
            listener.recv(1_000)


def test_a_manager_that_is_gone_full_or_abstract_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for gone in ("", str(tmp_path / "gone"), "@weir-test-gone", "x" * 500):
        monkeypatch.setenv(VARIABLE, gone)
        tell_manager(SERVING)
    name = f"weir-test-{tmp_path.name}"
    monkeypatch.setenv(VARIABLE, f"@{name}")
    with manager(f"\0{name}") as listener:
        # Its queue is full long before.
        for _ in range(2_000):
            tell_manager(SERVING)
        assert listener.recv(1_000).decode() == SERVING
