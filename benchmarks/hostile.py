"""What strangers make a node hold: many connections that begin something and never end it.

    python benchmarks/hostile.py [--connections 10000] [--hold 12] [--attacks NAME ...]
        [--write benchmarks/RESULTS.md]

For each attack one `weir serve` of its own; the connections come from some twenty addresses of
loopback, send what the attack says and then nothing, read nothing, and stay for so many seconds.
Meanwhile a client of another address asks for something small once a second. Told are the node's
RSS before, at its most and after, how long that client waited, and how many connections the node
has dropped by itself.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import selectors
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Self

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import results
from benchmarks.load.procfs import resident_bytes
from benchmarks.soak import Node, serving

ADDRESSES = 20
"""Of the attackers: 127.0.1.1 and on."""

RISE_MIB_MAX = 500.0
"""Twice both budgets at most, and 10 KB for each of 10,000 connections."""

WAIT_S_MAX = 1.0
"""For the answer to a small question of another address."""

SEND_S = 20.0
PROBE_TIMEOUT_S = 10.0


# --- What is sent ---------------------------------------------------------------------------


def mqtt_string(text: bytes) -> bytes:
    """As MQTT spells it."""
    return struct.pack(">H", len(text)) + text


def mqtt_packet(first: int, body: bytes, length: int | None = None) -> bytes:
    """A packet, or the beginning of one of `length` bytes."""
    left, size = (len(body) if length is None else length), b""
    while True:
        left, digit = left >> 7, left & 127
        size += bytes([digit | (128 if left else 0)])
        if not left:
            return bytes([first]) + size + body


def mqtt_connect(client: bytes) -> bytes:
    """CONNECT of MQTT 3.1.1, as guest."""
    head = mqtt_string(b"MQTT") + b"\x04\xc2\x00\x00"
    return mqtt_packet(0x10, head + b"".join(map(mqtt_string, (client, b"guest", b"guest"))))


def amqp_frame(kind: int, channel: int, payload: bytes, length: int | None = None) -> bytes:
    """A frame, or the beginning of one of `length` bytes."""
    head = struct.pack(">BHI", kind, channel, len(payload) if length is None else length)
    return head + payload + (b"\xce" if length is None else b"")


AMQP_HEADER = b"AMQP\x00\x00\x09\x01"
AMQP_LOGIN = (
    AMQP_HEADER
    + amqp_frame(
        1,
        0,
        b"\x00\x0a\x00\x0b\x00\x00\x00\x00\x05PLAIN\x00\x00\x00\x0c\x00guest\x00guest\x05en_US",
    )
    + amqp_frame(1, 0, b"\x00\x0a\x00\x1f\x07\xff\x00\x02\x00\x00\x00\x00")
    + amqp_frame(1, 0, b"\x00\x0a\x00\x28\x01/\x00\x00")
    + amqp_frame(1, 1, b"\x00\x14\x00\x0a\x00")
)
AMQP_PUBLISH = (
    amqp_frame(1, 1, b"\x00\x3c\x00\x28\x00\x00\x00\x04half\x00")
    + amqp_frame(2, 1, b"\x00\x3c\x00\x00" + struct.pack(">QH", 16 << 20, 0))
)  # fmt: skip
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


def http2_literal(name: bytes, value: bytes) -> bytes:
    """A header that is in no table (RFC 7541, 6.2.2)."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def grpc_half(size: int) -> bytes:
    """A SendMessage of 4 MiB, of which so much comes."""
    block = b"".join(
        http2_literal(name, value)
        for name, value in (
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", b"/apache.rocketmq.v2.MessagingService/SendMessage"),
            (b":authority", b"h"),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
        )
    )
    frames = struct.pack(">I", len(block))[1:] + b"\x01\x04" + struct.pack(">I", 1) + block
    data = b"\x00" + struct.pack(">I", 4 << 20) + b"x" * size
    for at in range(0, len(data), 16_384):
        part = data[at : at + 16_384]
        frames += struct.pack(">I", len(part))[1:] + b"\x00\x00" + struct.pack(">I", 1) + part
    return HTTP2 + frames


def sqs_half(key: str, size: int) -> bytes:
    """A SendMessage of 4 MiB, signed wrongly with that key, of which so much comes."""
    now = datetime.now(UTC)
    return (
        b"POST / HTTP/1.1\r\nHost: h\r\nX-Amz-Target: AmazonSQS.SendMessage\r\n"
        b"X-Amz-Date: %b\r\nAuthorization: AWS4-HMAC-SHA256 Credential=%b/%b/us-east-1/sqs/"
        b"aws4_request, SignedHeaders=host;x-amz-date;x-amz-target, Signature=%b\r\n"
        b"Content-Length: 4194304\r\n\r\n"
        % (
            now.strftime("%Y%m%dT%H%M%SZ").encode(),
            key.encode(),
            now.strftime("%Y%m%d").encode(),
            b"0" * 64,
        )
    ) + b"x" * size


HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
"""The beginning of a TLS handshake."""


class Attack(NamedTuple):
    """Connections of one kind."""

    listener: str
    payload: Callable[[int], bytes]
    """What connection number N sends."""


KB = 1_024
ATTACKS = {
    "amqp: silent": Attack("amqp.tcp", lambda _: b""),
    "amqp: half a frame": Attack(
        "amqp.tcp", lambda _: AMQP_HEADER + amqp_frame(1, 0, b"x" * 60 * KB, 62 * KB)
    ),
    "amqp: half a publish": Attack(
        "amqp.tcp",
        lambda _: AMQP_LOGIN + AMQP_PUBLISH + amqp_frame(3, 1, b"x" * 100 * KB) * 4,
    ),
    "amqp: half a handshake": Attack("amqp.tls", lambda _: HELLO),
    "mqtt: silent": Attack("mqtt.tcp", lambda _: b""),
    "mqtt: half a CONNECT": Attack(
        "mqtt.tcp", lambda _: mqtt_packet(0x10, b"\x00\x04MQTT\x04" + b"x" * 120 * KB, 128 * KB - 9)
    ),
    "mqtt: half a PUBLISH": Attack(
        "mqtt.tcp",
        lambda n: (
            mqtt_connect(b"half-%d" % n) + mqtt_packet(0x30, b"\x00\x01a" * 100 * KB, 1 << 24)
        ),
    ),
    "mqtt: does not read": Attack(
        "mqtt.tcp",
        lambda n: (
            mqtt_connect(b"mute-%d" % n)
            + mqtt_packet(0x82, b"\x00\x01" + mqtt_string(b"flood/#") + b"\x00")
        ),
    ),
    "mqtt: half a handshake": Attack("mqtt.tls", lambda _: HELLO),
    "mqtt: half an upgrade": Attack(
        "mqtt.websocket", lambda _: b"GET /mqtt HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 12 * KB
    ),
    "sqs: half a head": Attack("sqs.http", lambda _: b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * 8 * KB),
    "sqs: half a body, unknown key": Attack("sqs.http", lambda _: sqs_half("AKIA", 1_024 * KB)),
    "sqs: half a body, known key": Attack("sqs.http", lambda _: sqs_half("weir", 1_024 * KB)),
    "sqs: half a handshake": Attack("sqs.tls", lambda _: HELLO),
    "rocketmq: silent": Attack("rocketmq.grpc", lambda _: HTTP2),
    "rocketmq: half a message": Attack("rocketmq.grpc", lambda _: grpc_half(60 * KB)),
    "admin: half a head": Attack("admin", lambda _: b"GET / HTTP/1.1\r\nA: " + b"x" * 40 * KB),
}


# --- Who sends it ---------------------------------------------------------------------------


@dataclass
class Horde:
    """The connections of one attack."""

    port: int
    peers: list[socket.socket] = field(default_factory=list)
    refused: int = 0

    def connect(self, count: int, payload: Callable[[int], bytes]) -> None:
        """Open them all, and send what fits until nothing more is taken."""
        selector = selectors.DefaultSelector()
        for number in range(count):
            peer = socket.socket()
            try:
                peer.bind((f"127.0.1.{1 + number % ADDRESSES}", 0))
                peer.settimeout(5)
                peer.connect(("127.0.0.1", self.port))
            except OSError:
                self.refused += 1
                peer.close()
                continue
            peer.setblocking(False)
            self.peers.append(peer)
            data = memoryview(payload(number))
            if data:
                selector.register(peer, selectors.EVENT_WRITE, data)
        self._send(selector)

    def _send(self, selector: selectors.BaseSelector) -> None:
        deadline_s = time.monotonic() + SEND_S
        while selector.get_map() and time.monotonic() < deadline_s:
            for key, _ in selector.select(1):
                peer, data = key.fileobj, key.data
                assert isinstance(peer, socket.socket)
                try:
                    sent = peer.send(data)
                except OSError:
                    selector.unregister(peer)
                    continue
                if sent == len(data):
                    selector.unregister(peer)
                else:
                    selector.modify(peer, selectors.EVENT_WRITE, data[sent:])
        selector.close()

    def dropped(self) -> int:
        """How many the node has closed."""
        gone = 0
        for peer in self.peers:
            try:
                while peer.recv(65_536):
                    pass
                gone += 1
            except BlockingIOError:
                pass
            except OSError:
                gone += 1
        return gone

    def close(self) -> None:
        """Close every connection."""
        for peer in self.peers:
            peer.close()


# --- Who is served meanwhile ----------------------------------------------------------------


PROBES: dict[str, tuple[bytes, bytes]] = {
    "amqp": (AMQP_HEADER, b"\x01\x00\x00"),
    "mqtt": (mqtt_connect(b"probe"), b"\x20\x02\x00\x00"),
    "websocket": (b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", b"HTTP/1.1 4"),
    "sqs": (b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", b"HTTP/1.1 403"),
    "rocketmq": (HTTP2, b"\x00\x00"),
    "admin": (b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"HTTP/1.1 200"),
}


def probe_s(listener: str, port: int) -> float:
    """Seconds until a small question was answered; PROBE_TIMEOUT_S if it was not."""
    protocol, _, way = listener.partition(".")
    question, answer = PROBES["websocket" if way == "websocket" else protocol]
    began_s = time.monotonic()
    try:
        with contextlib.ExitStack() as stack:
            peer = stack.enter_context(
                socket.create_connection(("127.0.0.1", port), timeout=PROBE_TIMEOUT_S)
            )
            if way == "tls":
                context = ssl.create_default_context()
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                peer = stack.enter_context(context.wrap_socket(peer))
            peer.sendall(question)
            found = b""
            while len(found) < len(answer):
                part = peer.recv(4_096)
                if not part:
                    return PROBE_TIMEOUT_S
                found += part
            if not found.startswith(answer):
                return PROBE_TIMEOUT_S
    except OSError:
        return PROBE_TIMEOUT_S
    return time.monotonic() - began_s


# --- The measurement ------------------------------------------------------------------------


class Watch:
    """RSS and the patience of an honest client, while something goes on."""

    def __init__(self, node: Node, listener: str) -> None:
        self.most = 0
        self.waits_s: list[float] = []
        self._node = node
        self._listener = listener
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=each, daemon=True) for each in (self._look, self._probe)
        ]

    def _look(self) -> None:
        while not self._over.wait(0.1):
            self.most = max(self.most, resident_bytes([self._node.process.pid]))

    def _probe(self) -> None:
        while not self._over.wait(1):
            self.waits_s.append(probe_s(self._listener, self._node.port_of(self._listener)))

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


@dataclass
class Found:
    """What an attack came to; RSS in MiB."""

    before: float
    most: float
    after: float
    wait_s: float
    dropped: int
    refused: int

    @property
    def met(self) -> bool:
        """Whether it is within the bars."""
        return self.most - self.before <= RISE_MIB_MAX and self.wait_s <= WAIT_S_MAX


def flood(node: Node, seconds: float) -> None:
    """Somebody publishes to those who do not read."""
    with socket.create_connection(("127.0.0.1", node.ports["mqtt"]), timeout=30) as peer:
        peer.sendall(mqtt_connect(b"flood"))
        message = mqtt_packet(0x30, mqtt_string(b"flood/x") + b"x" * 16 * KB)
        over_s = time.monotonic() + seconds
        with contextlib.suppress(OSError):
            while time.monotonic() < over_s:
                peer.sendall(message)
                time.sleep(0.5)


def run(node: Node, attack: Attack, connections: int, hold_s: float) -> Found:
    """One attack on a node."""
    before = resident_bytes([node.process.pid])
    horde = Horde(node.port_of(attack.listener))
    with Watch(node, attack.listener) as watch:
        horde.connect(connections, attack.payload)
        if attack is ATTACKS["mqtt: does not read"]:
            flood(node, hold_s)
        else:
            time.sleep(hold_s)
        dropped = horde.dropped()
    horde.close()
    time.sleep(2)
    after = resident_bytes([node.process.pid])
    return Found(
        before / 2**20,
        watch.most / 2**20,
        after / 2**20,
        max(watch.waits_s, default=PROBE_TIMEOUT_S),
        dropped,
        horde.refused,
    )


def measured(names: list[str], connections: int, hold_s: float) -> Iterator[tuple[str, Found]]:
    """Each attack on a node of its own."""
    for name in names:
        with serving(["sqs.limits.connections_max=65536"], tls=True) as node:
            yield name, run(node, ATTACKS[name], connections, hold_s)


def main() -> int:
    """Measure the attacks that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--hold", type=float, default=12.0, help="seconds that they stay")
    parser.add_argument("--attacks", nargs="+", default=list(ATTACKS), choices=list(ATTACKS))
    parser.add_argument("--write", type=Path, help="the page to put the row on")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if options.connections + 100 > hard:
        raise SystemExit(f"only {hard} open files are allowed here: ulimit -n")
    rows = []
    for name, found in measured(options.attacks, options.connections, options.hold):
        print(json.dumps({"attack": name, "met": found.met, **vars(found)}), flush=True)
        rows.append((name, found))
    if options.write:
        write(options, rows)
    return 0 if all(found.met for _, found in rows) else 1


def write(options: argparse.Namespace, rows: list[tuple[str, Found]]) -> None:
    """Put the row on the page of results."""
    bar = f"≤ {RISE_MIB_MAX:g} MiB more, answers in ≤ {WAIT_S_MAX:g} s"
    lines = [
        f"## Strangers: {options.connections:,} connections that begin something and never end it",
        "",
        "| attack | RSS MiB before | most | after | longest wait s | dropped | bar | met |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {name} | {each.before:.0f} | {each.most:.0f} | {each.after:.0f} | {each.wait_s:.2f} "
        f"| {each.dropped:,} | {bar} | {'yes' if each.met else '**no**'} |"
        for name, each in rows
    ]
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    command = (
        f"`python benchmarks/hostile.py --connections {options.connections} "
        f"--hold {options.hold:g}`, {now} UTC"
    )
    results.write(options.write, "hostile", "\n".join([*lines, "", command]))


if __name__ == "__main__":
    sys.exit(main())
