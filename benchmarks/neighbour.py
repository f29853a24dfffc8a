"""A noisy neighbour: what one tenant's flood costs another's messages, protocol by protocol.

    python benchmarks/neighbour.py [--rows NAME ...] [--seconds 8] [--tree TREE]
        [--write benchmarks/RESULTS.md]

The flood: connections of a tenant, each sends a window of messages and waits until all of it is
confirmed; or they consume, without acks and as fast as it comes, what such a flood has left. The
victim: another tenant's messages, RATE a second on a fixed schedule, each timed from
when it was due until it is confirmed. Measured are the victim in the quiet, then in turn the flood
without it and both, there and back again: a virtual machine gets the memory for what the journal
writes from its host page by page, so that what is measured later may be slower. The server is on
the first core, the clients on the second, where the flood gives way: the victim is late by what the
server does. `--tree`: the server of another build.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from adapters.mqtt.codec.encoder import encode, publish_frame
from adapters.mqtt.codec.packets import Connect
from benchmarks import results
from benchmarks.builds import FOLDER, Side, environment, node, pinned
from benchmarks.load import amqp_wire, rocketmq_wire
from benchmarks.load.amqp_client import SetupConnection
from benchmarks.load.rocketmq_client import Connection, expect_ok
from benchmarks.load.sqs_wire import AnswerReader, Signer, parse_endpoint
from benchmarks.session import ROOT, load_average, machine

RATE = 100
CONNECTIONS = 64
"""The victim's, each with one message under way: with 4 of them a message that takes over 40 ms has
the next ones wait at the client, where no server can help it."""

SIZE_BYTES = 1024
READ_BYTES = 256 * 1024
TIMES_MAX = 3.0
MORE_MS_MAX = 10.0
RATE_SHARE_MIN = 0.8
FILL_MORE_S = 3.0
"""A flood publishes for so much longer than its backlog is consumed: its first two seconds are not
measured either."""

COMMITS_MAX = 2
"""Of the flood's, that a message may wait for where one message is a commit."""


class Row(NamedTuple):
    """One flood."""

    protocol: str
    connections: int
    window: int
    size_bytes: int = SIZE_BYTES
    is_large: bool = False
    """Judged by how long its own commits take."""
    fills: str = ""
    """Name of the row whose flood is published before each measurement: this one consumes it."""


ROWS = {
    "amqp": Row("amqp", 64, 200),
    "mqtt": Row("mqtt", 64, 100),
    "sqs": Row("sqs", 64, 1),
    "rocketmq": Row("rocketmq", 32, 1),
    "amqp-16mb": Row("amqp", 3, 1, 16 * 1024 * 1024, is_large=True),
    "amqp-backlog": Row("amqp-backlog", 8, 100, fills="amqp"),
}


class Login(NamedTuple):
    """Who connects where."""

    tenant: str
    user: str
    password: str
    key: str
    secret: str
    port: int


VICTIM = ("default", "guest", "guest", "weir", "weir-secret")


class Client(ABC):
    """One connection; a message is `send`'s, confirmed when it returns."""

    @abstractmethod
    async def open(self, login: Login, number: int, size_bytes: int) -> None:
        """Connect and sign in; messages are of so many bytes."""

    @abstractmethod
    async def send(self, count: int) -> None:
        """Send so many messages at once; return when the last is confirmed."""


class _Stream(Client):
    """Over a socket: `message` again and again, answers counted by `confirmed`."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    message = b""

    def __init__(self) -> None:
        self.rest = b""

    @abstractmethod
    def confirmed(self) -> int:
        """How many messages the answers in `rest` confirm; takes them out."""

    async def send(self, count: int) -> None:
        self.writer.write(self.message * count)
        await self.hear(count)

    async def hear(self, count: int) -> None:
        """Return when so many are confirmed."""
        while count > 0:
            data = await self.reader.read(READ_BYTES)
            if not data:
                raise SystemExit("the server has closed a connection")
            self.rest += data
            count -= self.confirmed()


class Amqp(_Stream):
    """A confirmed publish to a durable queue."""

    async def open(self, login: Login, number: int, size_bytes: int) -> None:
        vhost = "%2F" if login.tenant == "default" else login.tenant
        user = login.user if login.tenant == "default" else f"{login.tenant}%3A{login.user}"
        url = f"amqp://{user}:{login.password}@127.0.0.1:{login.port}/{vhost}"
        setup = SetupConnection(amqp_wire.parse_url(url))
        queue = f"load-{number % 4}"
        setup.open_channel(1)
        setup.declare_queue(queue, durable=True, arguments={})
        setup.select_confirms(1)
        self.reader, self.writer = await asyncio.open_connection(sock=setup.detach())
        most = setup.frame_size_max - amqp_wire.FRAME_OVERHEAD
        routing = b"\x00\x00" + amqp_wire.short_string("") + amqp_wire.short_string(queue) + b"\x00"
        header = b"\x00\x3c\x00\x00" + size_bytes.to_bytes(8, "big") + b"\x10\x00\x02"
        body = bytes(size_bytes)
        self.message = b"".join(
            (
                amqp_wire.method(1, (60 << 16) + 40, routing),
                amqp_wire.frame(2, 1, header),
                *(amqp_wire.frame(3, 1, body[at : at + most]) for at in range(0, len(body), most)),
            )
        )
        self._upto = 0

    def confirmed(self) -> int:
        before, at, data = self._upto, 0, self.rest
        while len(data) - at >= amqp_wire.FRAME_OVERHEAD:
            size = int.from_bytes(data[at + 3 : at + 7], "big")
            if len(data) - at < size + amqp_wire.FRAME_OVERHEAD:
                break
            payload = data[at + 7 : at + 7 + size]
            if payload[:4] == b"\x00\x3c\x00\x50":
                tag = int.from_bytes(payload[4:12], "big")
                self._upto = tag if payload[12] & 1 else self._upto + 1
            elif data[at] == 1:
                raise SystemExit(f"the server refuses: {payload!r}")
            at += size + amqp_wire.FRAME_OVERHEAD
        self.rest = data[at:]
        return self._upto - before


class AmqpBacklog(Amqp):
    """Consumes what is in a queue, without acks: `send` returns when so many have come."""

    async def open(self, login: Login, number: int, size_bytes: int) -> None:
        await super().open(login, number, size_bytes)
        queue, tag = amqp_wire.short_string(f"load-{number % 4}"), amqp_wire.short_string("c")
        asked = b"\x00\x00" + queue + tag + b"\x02" + bytes(4)
        self.writer.write(amqp_wire.method(1, (60 << 16) + 20, asked))

    async def send(self, count: int) -> None:
        await self.hear(count)

    def confirmed(self) -> int:
        came, at, data = 0, 0, self.rest
        while len(data) - at >= amqp_wire.FRAME_OVERHEAD:
            size = int.from_bytes(data[at + 3 : at + 7], "big")
            if len(data) - at < size + amqp_wire.FRAME_OVERHEAD:
                break
            came += data[at] == 2  # each has one content header
            at += size + amqp_wire.FRAME_OVERHEAD
        self.rest = data[at:]
        return came


class Mqtt(_Stream):
    """QoS 1, to a topic that a durable queue gets."""

    async def open(self, login: Login, number: int, size_bytes: int) -> None:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", login.port)
        user = login.user if login.tenant == "default" else f"{login.tenant}:{login.user}"
        connect = Connect(
            f"{login.tenant}-{number}", 4, True, username=user, password=login.password.encode()
        )
        self.writer.write(encode(connect, 4))
        answer = await self.reader.readexactly(4)
        if answer[3]:
            raise SystemExit(f"the server refuses: {answer!r}")
        topic = f"load-{number % 4}".encode()
        head, tail = publish_frame(4, 2, topic, b"", bytes(size_bytes))
        self.message = head + b"\x00\x01" + tail
        self._parts = head, tail
        self._next = 0

    async def send(self, count: int) -> None:
        head, tail = self._parts
        numbers = [(self._next + at) % 60_000 + 1 for at in range(count)]
        self._next += count
        self.message = b"".join(head + each.to_bytes(2, "big") + tail for each in numbers)
        await self._send_all(count)

    async def _send_all(self, count: int) -> None:
        self.writer.write(self.message)
        while count > 0:
            self.rest += await self.reader.read(READ_BYTES)
            count -= self.confirmed()

    def confirmed(self) -> int:
        whole = len(self.rest) // 4
        self.rest = self.rest[whole * 4 :]
        return whole


class Sqs(Client):
    """SendMessage, one after the other, as SDKs do."""

    async def open(self, login: Login, number: int, size_bytes: int) -> None:
        endpoint = parse_endpoint(f"http://127.0.0.1:{login.port}")
        signer = Signer(endpoint, login.key, login.secret, "us-east-1", datetime.now(UTC))
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", login.port)
        self._answers = AnswerReader()
        name = f"load-{number % 4}"
        made = await self._ask(signer.request("CreateQueue", {"QueueName": name}))
        url = json.loads(made)["QueueUrl"]
        body = {"QueueUrl": url, "MessageBody": "x" * size_bytes}
        self._request = signer.request("SendMessage", body)

    async def _ask(self, request: bytes) -> bytes:
        self.writer.write(request)
        while True:
            answer = self._answers.feed(await self.reader.read(READ_BYTES))
            if answer is not None:
                answer.check("a call")
                return answer.body

    async def send(self, count: int) -> None:
        for _ in range(count):
            await self._ask(self._request)


class Rocketmq(Client):
    """SendMessage, one after the other, to a topic that is there."""

    async def open(self, login: Login, number: int, size_bytes: int) -> None:
        url = f"rocketmq://{login.key}:{login.secret}@127.0.0.1:{login.port}"
        self._connection = Connection(url, f"{login.tenant}-{number}@neighbour")
        topic = f"load-{login.tenant}"
        self._requests = rocketmq_wire.SendRequests(topic, size_bytes, 1, 1, number)
        self._key = 0
        await self._connection.check(topic)

    async def send(self, count: int) -> None:
        for _ in range(count):
            self._key += 1
            answer = await self._connection.send(self._requests.make(self._key, 0))
            expect_ok(answer, "the server")


CLIENTS: dict[str, type[Client]] = {
    "amqp": Amqp,
    "mqtt": Mqtt,
    "sqs": Sqs,
    "rocketmq": Rocketmq,
    "amqp-backlog": AmqpBacklog,
}


# --- Client processes -------------------------------------------------------------------------


async def flood(row: Row, login: Login, seconds: float) -> list[float]:
    """As fast as it goes; one figure: messages a second, without the first two seconds."""
    sent = 0

    async def one(number: int) -> None:
        nonlocal sent
        client = CLIENTS[row.protocol]()
        await client.open(login, number, row.size_bytes)
        while True:
            await client.send(row.window)
            sent += row.window

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(one(number)) for number in range(row.connections)]
        await asyncio.sleep(2)
        print("ready", flush=True)
        before, began_s = sent, time.monotonic()
        await asyncio.sleep(seconds)
        rate = (sent - before) / (time.monotonic() - began_s)
        for task in running:
            task.cancel()
    return [rate]


async def victim(row: Row, login: Login, seconds: float) -> list[float]:
    """Milliseconds of each of its messages."""
    clients = [CLIENTS[row.protocol]() for _ in range(CONNECTIONS)]
    for number, client in enumerate(clients):
        await client.open(login, number, SIZE_BYTES)
    free: asyncio.Queue[Client] = asyncio.Queue()
    for client in clients:
        free.put_nowait(client)
    took_ms: list[float] = []

    async def one(due_s: float) -> None:
        client = await free.get()
        await client.send(1)
        took_ms.append((time.monotonic() - due_s) * 1_000)
        free.put_nowait(client)

    await clients[0].send(1)
    began_s = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for number in range(int(seconds * RATE)):
            due_s = began_s + number / RATE
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            tasks.create_task(one(due_s))
    return took_ms


def client_process(role: str, name: str, login: Login, seconds: float) -> subprocess.Popen[str]:
    """One of the clients: the same program."""
    words = [__file__, "--role", role, "--rows", name, "--seconds", str(seconds)]
    command = pinned(1, *words, "--login", json.dumps(login))
    if role == "flood":
        command = ["chrt", "--idle", "0", *command]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment(ROOT), stdout=subprocess.PIPE, text=True
    )


def said(process: subprocess.Popen[str]) -> list[float]:
    """What a client process has found out. SystemExit if it has failed."""
    output, _ = process.communicate(timeout=120)
    if process.returncode:
        raise SystemExit(f"a client failed:\n{output[-2_000:]}")
    found: list[float] = json.loads(output.splitlines()[-1])
    return found


def quantiles(took_ms: list[float]) -> dict[str, float]:
    """Of milliseconds."""
    took_ms = sorted(took_ms)
    return {
        "p50": took_ms[len(took_ms) // 2],
        "p99": took_ms[len(took_ms) * 99 // 100],
        "most": took_ms[-1],
    }


# --- One row ----------------------------------------------------------------------------------


class Found(NamedTuple):
    """What one row came to."""

    quiet: dict[str, float]
    beside: dict[str, float]
    rate_alone: float
    rate_beside: float

    def bar_ms(self, row: Row) -> float:
        """What the victim's p99 may be."""
        if row.is_large:
            commit_ms = 1_000 / self.rate_beside
            return self.quiet["p99"] + COMMITS_MAX * commit_ms
        return max(TIMES_MAX * self.quiet["p99"], self.quiet["p99"] + MORE_MS_MAX)

    def share(self) -> float:
        """Of its rate, that the flood keeps."""
        return self.rate_beside / self.rate_alone

    def is_met(self, row: Row) -> bool:
        """Whether both bars are."""
        return self.beside["p99"] <= self.bar_ms(row) and self.share() >= RATE_SHARE_MIN


def login_of(side: Side, row: Row, who: tuple[str, str, str, str, str]) -> Login:
    """Somebody's, for the protocol of a row."""
    return Login(*who, side.ports[row.protocol.partition("-")[0]])


def stranger(tree: Path, data: Path) -> tuple[str, str, str, str, str]:
    """A user of the tenant `flood`, with a key."""

    def weir(*words: str, given: str | None = None) -> str:
        command = [sys.executable, "-m", "gateway", *words, "--data", str(data)]
        done = subprocess.run(
            command,
            cwd=tree,
            env=environment(tree),
            input=given,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    who = ("--tenant", "flood")
    weir("user", "create", "fred", *who, "--policy", "full", "--password", given="fred's\n")
    key = json.loads(weir("key", "create", "fred", *who, "--output", "json"))
    weir("topic", "create", "load-flood", *who)
    weir("topic", "create", "load-default")
    return "flood", "fred", "fred's", key["key_id"], key["secret"]


def measured(tree: Path, name: str, seconds: float) -> Found:
    """One row, on a server of its own."""
    row = ROWS[name]
    victims = row.fills or name
    FOLDER.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="neighbour-", dir=FOLDER))
    try:
        config = folder / "weir.yaml"
        config.write_text("tenants: {flood: {}}\n")
        with node(tree, folder, [], config) as side:
            noisy = login_of(side, row, stranger(tree, folder / "data"))
            quiet_login = login_of(side, row, VICTIM)
            quiet = quantiles(said(client_process("victim", victims, quiet_login, seconds)))
            took_ms: list[float] = []
            rates: dict[bool, list[float]] = {False: [], True: []}
            for is_beside in (False, True, True, False):
                if row.fills:
                    said(client_process("flood", row.fills, noisy, seconds + FILL_MORE_S))
                process = client_process("flood", name, noisy, seconds + is_beside)
                if is_beside:
                    assert process.stdout is not None
                    process.stdout.readline()
                    took_ms += said(client_process("victim", victims, quiet_login, seconds))
                rates[is_beside] += said(process)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Found(quiet, quantiles(took_ms), fmean(rates[False]), fmean(rates[True]))


def line(name: str, found: Found) -> str:
    """A row of the table."""
    row = ROWS[name]
    cells = (
        name,
        f"{row.connections} × {row.window} × {row.size_bytes:,} B",
        f"{found.quiet['p50']:.1f}, {found.quiet['p99']:.1f}",
        f"{found.beside['p50']:.1f}, {found.beside['p99']:.1f} ({found.beside['most']:.0f})",
        f"≤ {found.bar_ms(row):.0f}",
        f"{found.rate_alone:,.0f}",
        f"{found.rate_beside:,.0f} ({found.share():.0%})",
        "yes" if found.is_met(row) else "**no**",
    )
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Measure as the command line says; 1 if a bar is not met."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=ROWS)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    parser.add_argument("--tree", type=Path, default=ROOT, help="the server's tree")
    parser.add_argument("--write", type=Path, help="the page to put the row on")
    parser.add_argument("--role", choices=("flood", "victim"), help=argparse.SUPPRESS)
    parser.add_argument("--login", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        work = flood if options.role == "flood" else victim
        row = ROWS[options.rows[0]]
        print(json.dumps(asyncio.run(work(row, Login(*options.login), options.seconds))))
        return 0
    load = load_average()
    lines, met = [], True
    for name in options.rows:
        found = measured(options.tree.resolve(), name, options.seconds)
        met = met and found.is_met(ROWS[name])
        lines.append(line(name, found))
        print(lines[-1], flush=True)
    if options.write:
        columns = (
            "| row | flood | quiet: p50, p99 | beside it: p50, p99 (most) | bar of p99 "
            "| flood alone, messages/s | beside | met |"
        )
        head = [
            "## A noisy neighbour: milliseconds of 100 messages/s beside another tenant's flood",
            "",
            columns,
            "| --- | --- | --- | --- | --- | --- | --- | --- |",
        ]
        now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
        command = (
            f"`python benchmarks/neighbour.py --rows {' '.join(options.rows)} --seconds "
            f"{options.seconds:g}`, {now} UTC; {machine()}; {os.cpu_count()} cores; load average "
            f"before {load}, after {load_average()}"
        )
        results.write(options.write, "neighbour", "\n".join([*head, *lines, "", command]))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
