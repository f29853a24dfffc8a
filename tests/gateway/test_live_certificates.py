"""Certificates that are renewed while a node serves: every listener shows them at once."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import ssl
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import structlog
from cryptography import x509
from structlog.testing import capture_logs

from auth.private_files.tls import CertificateFiles, server_context
from gateway.access.live_certificates import ALARM_BEFORE, LiveCertificate
from kernel.store.drivers.system import SystemClock
from tests.certificates import Authority
from tests.gateway.serving import Process, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

TLS_LISTENERS = ("amqp.tls", "mqtt.tls", "sqs.tls", "rocketmq.tls", "rocketmq.grpc")


def print_of(pem: bytes | str) -> str:
    text = pem if isinstance(pem, str) else pem.decode()
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(text)).hexdigest()


def shown(port: int) -> str:
    """The certificate that a port shows."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as connection,
        context.wrap_socket(connection) as secured,
    ):
        return hashlib.sha256(secured.getpeercert(binary_form=True) or b"").hexdigest()


def all_shown(node: Process) -> set[str]:
    ports = [node.listeners[name] for name in TLS_LISTENERS]
    return {shown(port) for port in (*ports, int(node.admin_url.rpartition(":")[2]))}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "authority")


@pytest.fixture(scope="module")
def node(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    chain, key = authority.issue()
    settings = (
        f"node.tls.certificate={chain}",
        f"node.tls.private_key={key}",
        "node.admin.tls=true",
    )
    with serving(tmp_path_factory.mktemp("live"), *settings) as process:
        yield process


def test_every_listener_shows_a_renewed_certificate_and_keeps_it_over_a_broken_one(
    node: Process, authority: Authority
) -> None:
    chain, key = authority.issue()
    node.process.send_signal(signal.SIGHUP)
    assert node.wait_for("certificate taken")["of"] == "listeners"
    assert all_shown(node) == {print_of(chain.read_bytes())}
    assert print_of((node.data / "admin.crt").read_bytes()) == print_of(chain.read_bytes())

    good = chain.read_bytes()
    key.write_bytes(b"no key")
    node.process.send_signal(signal.SIGHUP)
    assert "no usable certificate and key" in node.wait_for("certificate not taken")["reason"]
    assert all_shown(node) == {print_of(good)}


class Pair:
    """A pair of files, and what shows it."""

    def __init__(self, authority: Authority) -> None:
        self.authority = authority
        self.clock = SystemClock()
        self.files = CertificateFiles(*authority.issue(file="pair"))
        log = structlog.get_logger("test")
        self.live = LiveCertificate("listeners", lambda: self.files, log, self.clock)
        self.context = self.live.keep(server_context(self.files))

    def shown(self) -> str:
        """By a handshake in memory."""
        client = ssl.create_default_context()
        client.check_hostname = False
        client.verify_mode = ssl.CERT_NONE
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        ours = client.wrap_bio(to_client, to_server)
        theirs = self.context.wrap_bio(to_server, to_client, server_side=True)
        for _ in range(4):
            for side in (ours, theirs):
                with suppress(ssl.SSLWantReadError):
                    side.do_handshake()
        return hashlib.sha256(ours.getpeercert(binary_form=True) or b"").hexdigest()

    def look(self) -> list[str]:
        """What is said of a look."""
        with capture_logs() as lines:
            self.live.look()
        return [line["event"] for line in lines]


@pytest.fixture
def pair(authority: Authority) -> Pair:
    return Pair(authority)


def test_what_has_not_changed_is_not_taken_again(pair: Pair) -> None:
    os.utime(pair.files.certificate, (time.time(), time.time()))
    assert pair.look() == []


def test_a_pair_is_taken_once_both_files_are_there(pair: Pair) -> None:
    old, old_key = pair.shown(), pair.files.private_key.read_bytes()
    pair.authority.issue(file="pair")
    new_key = pair.files.private_key.read_bytes()
    pair.files.private_key.write_bytes(old_key)
    assert pair.look() == ["certificate not taken"]
    assert pair.look() == [], "it is said once"
    assert pair.live.alarm.startswith("listeners: a new certificate was not taken: ")
    assert pair.shown() == old
    pair.files.private_key.write_bytes(new_key)
    assert pair.look() == ["certificate taken"]
    assert pair.shown() == print_of(pair.files.certificate.read_bytes()) != old


def test_one_that_ends_within_a_week_is_an_alarm(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = x509.load_pem_x509_certificate(pair.live.pair.certificate).not_valid_after_utc
    assert pair.live.alarm == f"listeners: the certificate ends at {ends}", "tests' are short"
    before_ms = int((ends - ALARM_BEFORE).timestamp() * 1000) - 1
    monkeypatch.setattr(SystemClock, "wall_ms", lambda _self: before_ms)
    assert pair.live.alarm == ""


def test_a_file_that_is_gone_keeps_the_old_one(pair: Pair) -> None:
    old = pair.shown()
    pair.files.certificate.unlink()
    assert pair.look() == ["certificate not taken"]
    assert pair.shown() == old


def test_one_that_has_expired_is_not_taken(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    old = pair.shown()
    pair.authority.issue(file="pair")
    day_ms = 86_400_000
    later = pair.clock.wall_ms() + day_ms
    monkeypatch.setattr(SystemClock, "wall_ms", lambda _self: later)
    assert pair.look() == ["certificate not taken"]
    assert pair.shown() == old
