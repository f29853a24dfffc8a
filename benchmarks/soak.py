"""Whether a node's memory stays where it is: steady traffic by all protocols, RSS over time.

    python benchmarks/soak.py [--warm-up 30] [--minutes 30] [--rate 60]
        [--protocols amqp sqs mqtt rocketmq] [--write benchmarks/RESULTS.md]

One `weir serve` in a folder of its own; by each protocol so many messages a second of 1 KB are
published and consumed with the client that people use (a process for each). What is kept for a
while (five minutes of the log's tail, deduplication) is there when the warm-up is over, and so is
what the allocator keeps free. The meter exports when an hour is over, and loads pyarrow the first
time, which is 60 MB: should that come while it counts, the warm-up goes on until it is over. From
then on RSS is read every second; the slope is that of a least-squares line.
Exit code 1 if it is above the bar, or if a client has stopped.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import results
from benchmarks.load.procfs import resident_bytes
from benchmarks.peers import free_port

PROTOCOLS = ("amqp", "sqs", "mqtt", "rocketmq")
SLOPE_MIB_MAX = 0.2
"""Mebibytes a minute: a gigabyte in three and a half days."""

EXPORTED_MINUTES = 6.0
"""After an hour's end its records have been exported: so long a late message is waited for."""

BODY = b"x" * 1_024
RETENTION = "2m"
"""Of RocketMQ's topic: what is stored is as much at the end of the warm-up as ever after."""

READY_S = 60.0


# --- Clients, a process each ----------------------------------------------------------------


class Pace:
    """Turns at a fixed rate; a client that falls behind makes up for it."""

    def __init__(self, rate: float) -> None:
        self._step_s = 1 / rate
        self._next_s = time.monotonic()

    def wait(self) -> None:
        """Until the next turn."""
        self._next_s += self._step_s
        left_s = self._next_s - time.monotonic()
        if left_s > 0:
            time.sleep(left_s)


def amqp(port: int, rate: float, done: Callable[[], None]) -> None:
    """A durable queue, persistent messages with confirms, acks one by one."""
    import pika

    url = f"amqp://guest:guest@127.0.0.1:{port}/%2F"
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.queue_declare("soak-amqp", durable=True)
    channel.confirm_delivery()
    persistent = pika.BasicProperties(delivery_mode=2)
    pace = Pace(rate)
    while True:
        pace.wait()
        channel.basic_publish("", "soak-amqp", BODY, persistent)
        method, _, _ = channel.basic_get("soak-amqp")
        if method is not None:
            channel.basic_ack(method.delivery_tag)
            done()


def sqs(port: int, rate: float, done: Callable[[], None]) -> None:
    """Batches of ten, each message leased for twelve hours and deleted at once."""
    import boto3

    client = boto3.client(
        "sqs",
        endpoint_url=f"http://127.0.0.1:{port}",
        region_name="us-east-1",
        aws_access_key_id="weir",
        aws_secret_access_key="weir-secret",
    )
    queue = client.create_queue(QueueName="soak-sqs")["QueueUrl"]
    entries = [{"Id": str(number), "MessageBody": BODY.decode()} for number in range(10)]
    pace = Pace(rate / 10)
    while True:
        pace.wait()
        client.send_message_batch(QueueUrl=queue, Entries=entries)
        got = client.receive_message(
            QueueUrl=queue, MaxNumberOfMessages=10, VisibilityTimeout=43_200, WaitTimeSeconds=1
        ).get("Messages", [])
        if got:
            handles = [
                {"Id": str(number), "ReceiptHandle": each["ReceiptHandle"]}
                for number, each in enumerate(got)
            ]
            client.delete_message_batch(QueueUrl=queue, Entries=handles)
        for _ in got:
            done()


def mqtt(port: int, rate: float, done: Callable[[], None]) -> None:
    """QoS 1 both ways, one client."""
    import paho.mqtt.client as paho
    from paho.mqtt.enums import CallbackAPIVersion

    client = paho.Client(CallbackAPIVersion.VERSION2, "soak", protocol=paho.MQTTv5)
    client.username_pw_set("guest", "guest")
    ready = threading.Event()

    def subscribe(*_: object) -> None:
        client.subscribe("soak/#", qos=1)

    client.on_connect = subscribe
    client.on_subscribe = lambda *_: ready.set()
    client.on_message = lambda *_: done()
    client.connect("127.0.0.1", port)
    client.loop_start()
    ready.wait(READY_S)
    pace = Pace(rate)
    while True:
        pace.wait()
        client.publish("soak/one", BODY, qos=1).wait_for_publish(READY_S)


def rocketmq(port: int, rate: float, done: Callable[[], None]) -> None:
    """A producer, and a simple consumer in a thread of its own."""
    from rocketmq import (
        ClientConfiguration,
        Credentials,
        FilterExpression,
        Message,
        Producer,
        SimpleConsumer,
    )

    configuration = ClientConfiguration(
        f"127.0.0.1:{port}", Credentials("weir", "weir-secret"), request_timeout=10
    )
    producer = Producer(configuration)
    producer.startup()
    consumer = SimpleConsumer(
        configuration, "soak", {"soak-rocketmq": FilterExpression()}, await_duration=5
    )
    consumer.startup()

    def consume() -> None:
        while True:
            for each in consumer.receive(32, 30) or ():
                consumer.ack(each)
                done()

    threading.Thread(target=consume, daemon=True).start()
    pace = Pace(rate)
    while True:
        pace.wait()
        message = Message()
        message.topic, message.body = "soak-rocketmq", BODY
        producer.send(message)


CLIENTS: dict[str, Callable[[int, float, Callable[[], None]], None]] = {
    "amqp": amqp,
    "sqs": sqs,
    "mqtt": mqtt,
    "rocketmq": rocketmq,
}


def client_main(protocol: str, port: int, rate: float) -> None:
    """A client's process: every second the number consumed so far, a line each."""
    count = itertools.count(1)
    latest = [0]

    def done() -> None:
        latest[0] = next(count)

    def tell() -> None:
        while True:
            time.sleep(1)
            print(latest[0], flush=True)

    threading.Thread(target=tell, daemon=True).start()
    CLIENTS[protocol](port, rate, done)


# --- The node -------------------------------------------------------------------------------


class Node:
    """`weir serve` on free ports."""

    def __init__(
        self, folder: Path, serve: list[str], extra: list[str], *, tls: bool = False
    ) -> None:
        """`tls`: with all listeners there are."""
        self.ports = {name: free_port() for name in (*PROTOCOLS, "node.admin")}
        self.others = {f"{each}.listeners.tls": free_port() for each in PROTOCOLS}
        self.others["mqtt.listeners.websocket"] = free_port()
        self.data = folder / "data"
        settings = [f"{name}.port={port}" for name, port in self.ports.items()]
        if tls:
            settings += [f"{name}.port={port}" for name, port in self.others.items()]
        else:
            settings += [f"{name}.enabled=false" for name in self.others]
        settings += extra
        command = [*serve, "--data", str(self.data)]
        command += [part for each in settings for part in ("--set", each)]
        self.log = folder / "output.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def port_of(self, listener: str) -> int:
        """By `protocol.listener`, as metrics name it; or `admin`."""
        if listener == "admin":
            return self.ports["node.admin"]
        protocol, _, name = listener.partition(".")
        return self.others.get(f"{protocol}.listeners.{name}", self.ports[protocol])

    def weir(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        """A command on this node."""
        command = [sys.executable, "-m", "gateway", *arguments, "--data", str(self.data)]
        return subprocess.run(command, capture_output=True, check=False)

    def wait_ready(self) -> bool:
        """False if it does not serve in time."""
        deadline_s = time.monotonic() + READY_S
        while self.weir("health").returncode:
            if self.process.poll() is not None or time.monotonic() > deadline_s:
                return False
            time.sleep(0.3)
        return True

    def stop(self) -> None:
        """End it, and wait for that."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()


@contextmanager
def serving(
    extra: list[str], serve: list[str] | None = None, *, tls: bool = False
) -> Iterator[Node]:
    """A node in a temporary folder; with the topic and group that RocketMQ needs."""
    folder = Path(tempfile.mkdtemp(prefix="weir-soak-"))
    command = serve or [sys.executable, "-m", "gateway", "serve"]
    node = Node(folder, command, extra, tls=tls)
    try:
        if not node.wait_ready():
            # Somebody else took one of the ports that were free.
            node.stop()
            node = Node(folder, command, extra, tls=tls)
            if not node.wait_ready():
                raise SystemExit(f"the node does not serve:\n{node.log.read_text()[-2_000:]}")
        node.weir("topic", "create", "soak-rocketmq", "--retention", RETENTION)
        node.weir("group", "create", "soak-rocketmq", "soak", "--start", "earliest")
        yield node
    finally:
        node.stop()
        shutil.rmtree(folder, ignore_errors=True)


class Clients:
    """A process for each protocol."""

    def __init__(self, node: Node, protocols: list[str], rate: float) -> None:
        self.consumed = dict.fromkeys(protocols, 0)
        self._processes = {
            each: subprocess.Popen(
                [sys.executable, __file__, "--client", each, str(node.ports[each]), str(rate)],
                stdout=subprocess.PIPE,
                env={**os.environ, "HOME": str(node.data.parent)},
            )
            for each in protocols
        }
        for each, process in self._processes.items():
            threading.Thread(target=self._listen, args=(each, process), daemon=True).start()

    def _listen(self, protocol: str, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.consumed[protocol] = int(line)

    def stopped(self) -> list[str]:
        """Protocols whose client has ended."""
        return [each for each, process in self._processes.items() if process.poll() is not None]

    def stop(self) -> None:
        """End them."""
        for process in self._processes.values():
            process.kill()
            process.wait()


# --- The measurement ------------------------------------------------------------------------


def slope(points: list[tuple[float, float]]) -> float:
    """Of the least-squares line through (x, y)."""
    count = len(points)
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def warm_up_minutes(now: float, least: float, measured: float) -> float:
    """Minutes before it counts, if `now` is in minutes since the epoch: no hour's first export
    falls into those that are measured.
    """
    begins = (now + least) % 60
    if begins >= EXPORTED_MINUTES and begins + measured <= 60:
        return least
    return least + (60 + EXPORTED_MINUTES - begins) % 60


def watch(node: Node, clients: Clients, minutes: float, say: str) -> list[tuple[float, float]]:
    """(minutes, MiB) once a second."""
    began_s = time.monotonic()
    points: list[tuple[float, float]] = []
    while (now_s := time.monotonic() - began_s) < minutes * 60:
        points.append((now_s / 60, resident_bytes([node.process.pid]) / 2**20))
        if len(points) % 30 == 1:
            done = ", ".join(f"{name} {count:,}" for name, count in clients.consumed.items())
            print(f"{say} {now_s / 60:5.1f} min: {points[-1][1]:6.1f} MiB; {done}", file=sys.stderr)
        time.sleep(1)
    return points


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--warm-up", type=float, default=30.0, help="minutes before it counts")
    parser.add_argument("--minutes", type=float, default=30.0, help="minutes that count")
    parser.add_argument("--rate", type=float, default=60.0, help="messages a second a protocol")
    parser.add_argument("--protocols", nargs="+", default=list(PROTOCOLS), choices=PROTOCOLS)
    parser.add_argument("--set", action="append", default=[], help="a setting of the node")
    parser.add_argument("--write", type=Path, help="the page to put the row on")
    return parser.parse_args()


def main() -> int:
    """Measure for as long as the command line says."""
    if sys.argv[1:2] == ["--client"]:
        client_main(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
        return 0
    options = parsed()
    with serving(options.set) as node:
        clients = Clients(node, options.protocols, options.rate)
        try:
            warm_up = warm_up_minutes(time.time() / 60, options.warm_up, options.minutes)
            watch(node, clients, warm_up, "warm-up")
            before = dict(clients.consumed)
            points = watch(node, clients, options.minutes, "measured")
            gone = clients.stopped()
        finally:
            clients.stop()
    per_minute = slope(points)
    rates = {
        name: (clients.consumed[name] - before[name]) / options.minutes / 60 for name in before
    }
    met = per_minute <= SLOPE_MIB_MAX and not gone
    found = {
        "slope MiB/min": round(per_minute, 3),
        "RSS MiB, first": round(points[0][1], 1),
        "RSS MiB, last": round(points[-1][1], 1),
        "consumed/s": {name: round(each, 1) for name, each in rates.items()},
        "stopped": gone,
    }
    print(json.dumps(found))
    if options.write:
        write(options, found, met=met)
    return 0 if met else 1


def write(options: argparse.Namespace, found: dict[str, object], *, met: bool) -> None:
    """Put the row on the page of results."""
    lines = [
        "## Soak: memory under steady traffic by all protocols",
        "",
        "| figure | Weir | bar | met |",
        "| --- | --- | --- | --- |",
    ]
    for figure, value in found.items():
        bar = f"≤ {SLOPE_MIB_MAX}" if figure.startswith("slope") else ""
        lines.append(
            f"| {figure} | {value} | {bar} | {('yes' if met else '**no**') if bar else ''} |"
        )
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    command = (
        f"`python benchmarks/soak.py --warm-up {options.warm_up:g} --minutes {options.minutes:g}"
        f" --rate {options.rate:g} --protocols {' '.join(options.protocols)}`, {now} UTC"
    )
    results.write(options.write, "soak", "\n".join([*lines, "", command]))


if __name__ == "__main__":
    sys.exit(main())
