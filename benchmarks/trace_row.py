"""What it costs that a topic is traced: CPU of a node, a message.

    python benchmarks/trace_row.py [--messages 20000] [--rounds 6] [--write benchmarks/RESULTS.md]

One `weir serve`, AMQP, a topic of its own for each mode. In each round, and in an order that turns
round with it, so many messages of 1 KB are published with confirms, by 50, and then taken and acked
one by one with a prefetch of 200. CPU is that of the server, over both. The first round does not
count.
"""

from __future__ import annotations

import argparse
import http.client
import json
import shutil
import sys
from pathlib import Path

import pika

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import results
from benchmarks.load.procfs import cpu_s
from benchmarks.samples import Sample
from benchmarks.scrape_row import Server
from benchmarks.session import ROOT, circumstances, load_average

MODES = ("off", "sample", "all")
TOGETHER = 50
PREFETCH = 200
DURABLE = pika.BasicProperties(delivery_mode=2)


def ask(server: Server, data: Path, method: str, path: str, body: object) -> None:
    """One request of the admin API. SystemExit if it is refused."""
    token = (data / "admin.token").read_text().strip()
    connection = http.client.HTTPConnection("127.0.0.1", server.admin, timeout=30)
    headers = {"Authorization": f"Bearer {token}"}
    connection.request(method, f"/api/v1{path}", json.dumps(body), headers)
    response = connection.getresponse()
    said = response.read()
    connection.close()
    if response.status >= 300:
        raise SystemExit(f"{method} {path}: {response.status} {said!r}")


def cycle_us(server: Server, topic: str, messages: int) -> float:
    """Microseconds of the server's CPU for a message that is published, taken and acked."""
    url = f"amqp://guest:guest@127.0.0.1:{server.amqp}/%2f?heartbeat=0"
    before = cpu_s([server.process.pid])
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        publishing = connection.channel()
        for number in range(messages):
            publishing.basic_publish("", topic, bytes(1_000), DURABLE)
            if number % TOGETHER == TOGETHER - 1:
                publishing.queue_declare(topic, durable=True, passive=True)  # as far as it has come
        taking = connection.channel()
        taking.basic_qos(prefetch_count=PREFETCH)
        left = messages
        for method, _, _ in taking.consume(topic, inactivity_timeout=5):
            if method is None:
                raise SystemExit(f"{left} messages do not come")
            taking.basic_ack(method.delivery_tag)
            left -= 1
            if not left:
                break
        taking.cancel()
    return (cpu_s([server.process.pid]) - before) / messages * 1e6


def measured(data: Path, messages: int, rounds: int) -> dict[str, Sample]:
    """By mode."""
    server = Server(data)
    found: dict[str, list[float]] = {mode: [] for mode in MODES}
    try:
        server.wait()
        for mode in MODES:
            ask(server, data, "POST", "/topics", {"name": f"traced-{mode}", "type": "work"})
            if mode != "off":
                ask(server, data, "PUT", f"/topics/traced-{mode}/trace", {"mode": mode})
        for round_ in range(rounds + 1):
            for mode in MODES[:: 1 if round_ % 2 else -1]:
                us = cycle_us(server, f"traced-{mode}", messages)
                if round_:
                    found[mode].append(us)
    finally:
        server.stop()
    return {mode: Sample(tuple(each)) for mode, each in found.items()}


def section(found: dict[str, Sample], command: str, before: str) -> str:
    """The row as a section of the results page."""
    off = found["off"]
    lines = [
        f"| {mode} | {each.text()} | {each.over(off).text()} |\n" for mode, each in found.items()
    ]
    return (
        "## Message trace: CPU of a node, AMQP, 1 KB\n\n"
        "| trace | CPU us a message | over off |\n| --- | --- | --- |\n"
        f"{''.join(lines)}\n"
        "Published, handed out and acked one by one: three events, each of a batch of messages.\n\n"
        f"{circumstances(command, before)}\n"
    )


def main() -> None:
    """Measure, and write the row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT / ".bench" / "trace")
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--write", type=Path, help="page whose section of the row is renewed")
    options = parser.parse_args()
    shutil.rmtree(options.data, ignore_errors=True)
    options.data.mkdir(parents=True)
    before = load_average()
    found = measured(options.data, options.messages, options.rounds)
    shutil.rmtree(options.data, ignore_errors=True)
    command = f"python benchmarks/trace_row.py --messages {options.messages}"
    text = section(found, f"{command} --rounds {options.rounds}", before)
    print(text)
    if options.write is not None:
        results.write(options.write, "trace", text)


if __name__ == "__main__":
    main()
