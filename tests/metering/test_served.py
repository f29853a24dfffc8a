"""A whole node under real clients, killed once: what it bills is what it served, to the message."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path

import pika

from gateway.reporting.node_metering import ARCHIVE_DIRECTORY, export_offline
from metering.schema import INTERNAL, Action, Kind
from metering.schema.manifest import sequence_gaps
from spark.metered import SHAPES
from spark.pricebook import default_price_book
from spark.rating import rate
from spark.reconcile import OffsetGrowth, check_proof, check_routed
from tests.gateway.serving import Process, serving
from tests.metering.served.drivers import DRIVERS, Driver, Tally
from tests.metering.served.reading import (
    entries_of,
    growth_of,
    periods_of,
    records_of,
    tally_of,
    usage_of,
)

SEEN = ("kind", "protocol", "action", "queue_class", "outcome", "network")
SELDOM = "node.metering.flush_interval_s=3600"
OFTEN = "node.metering.flush_interval_s=1"
FLOOD = "am-flood"


def drivers_for(node: Process) -> list[Driver]:
    """Those of the protocols that this node serves; AMQP and SQS at least."""
    found = [driver for driver in (make() for make in DRIVERS) if driver.name in node.protocols]
    assert {"amqp", "sqs"} <= {driver.name for driver in found}
    return found


def flood(node: Process) -> None:
    """Publish without waiting for anything, and kill the node in the middle of it."""
    with contextlib.suppress(pika.exceptions.AMQPError, OSError):
        connection = node.amqp()
        channel = connection.channel()
        channel.queue_declare(FLOOD, durable=True)
        for number in range(3_000):
            channel.basic_publish("", FLOOD, b"x" * 500)
            if number == 2_000:
                node.kill()


def run_and_kill(data: Path) -> tuple[Tally, Tally, list[OffsetGrowth]]:
    """Two rounds of traffic with a kill between them; what must be billed at all, what of it was
    served after the kill, and the queues' end offsets. The second node is killed too: nothing is
    flushed in order.
    """
    tally: Tally = Counter()
    with serving(data, SELDOM) as node:
        for driver in drivers_for(node):
            driver.drive(node, tally)
        flood(node)
    before = Counter(tally)
    with serving(data, OFTEN) as node:
        for driver in drivers_for(node):
            driver.drive(node, tally)
        assert node.api("POST", "/metering/export").json["flushed"]
        growth = growth_of(node)
        node.kill()
    after = Counter({key: count - before[key] for key, count in tally.items()})
    return tally, after, growth


def test_what_is_billed_is_what_was_served_although_the_node_was_killed(tmp_path: Path) -> None:
    tally, after_the_kill, growth = run_and_kill(tmp_path)
    archive = tmp_path / ARCHIVE_DIRECTORY
    records = records_of(archive)
    usage = usage_of(records)

    # Zero tolerance: routed is the growth of the end offsets less the server's own moves.
    by_topic = {each.topic: each.end for each in growth}
    # Reference lists of MQTT's patterns are no topics that anybody can ask for: the archive's own
    # proof, below, holds them to the same.
    assert check_routed([row for row in usage if row.topic in by_topic], growth) == []
    assert check_proof(records, periods_of(records)[-1]) == []
    assert sequence_gaps(entries_of(archive)) == []
    assert by_topic["am-dead"] == tally[INTERNAL, "route", "store"] == 2
    flooded = [row for row in usage if row.topic == FLOOD]
    published = sum(row.messages for row in flooded if row.action == Action.PUBLISH)
    assert published == by_topic[FLOOD] > 0

    # What the log holds is exact; of the rest, what was counted before the kill is lost.
    found = tally_of(usage, without=FLOOD)
    stored = {key: count for key, count in tally.items() if key[2] == "store"}
    others = {key: count for key, count in after_the_kill.items() if key[2] == "api"}
    assert {key: count for key, count in found.items() if key[2] == "store"} == stored
    assert {key: count for key, count in found.items() if key[2] == "api"} == others

    # What a price book may ask for is what is metered, and nothing else is.
    unknown = [
        row
        for row in usage
        if row.kind != Kind.GAUGE
        and row.billable
        and not any(
            all(shape.allows(name, getattr(row, name)) for name in SEEN) for shape in SHAPES
        )
    ]
    assert unknown == []

    # Classes of publishing weigh in the price book, and so on the lines of an invoice.
    published = [row for row in usage if row.kind == Kind.STORE and row.action == Action.PUBLISH]
    classes = Counter[tuple[str, str]]()
    for row in published:
        classes[row.protocol, row.queue_class] += row.messages
    assert [classes["mqtt", name] for name in ("qos0", "qos1", "qos2")] == [0, 2 * 3, 2 * 1]
    assert classes["rocketmq", "transaction"] == 2
    quantities = Counter[str]()
    for period in periods_of(records):
        rows = [row for row in published if period.start_us <= row.hour_us < period.end_us]
        for line in rate(default_price_book(), rows, period):
            quantities[line.sku] += line.quantity
    assert quantities["mqtt.published"] == 2 * (3 * 2 + 5)
    assert quantities["rocketmq.published"] == 2 * (3 + 5)

    # Exporting again, with another start of the store, adds nothing to any of it.
    export_offline(tmp_path)
    export_offline(tmp_path)
    assert tally_of(usage_of(records_of(archive)), without=FLOOD) == found


def test_connections_and_their_octets_are_counted(tmp_path: Path) -> None:
    with serving(tmp_path, OFTEN) as node:
        with node.amqp() as connection:
            connection.channel().queue_declare("c", durable=True)
            connection.sleep(2.2)
        assert node.api("POST", "/metering/export").json["flushed"]
        shown = node.http("GET", "/metrics").body.decode()
    usage = usage_of(records_of(tmp_path / ARCHIVE_DIRECTORY))
    connects = [row for row in usage if row.action == Action.CONNECT]
    assert sum(row.requests for row in connects) == 1
    assert min(sum(row.bytes_in for row in connects), sum(row.bytes_out for row in connects)) > 100
    seconds = sum(row.gauge_integral for row in usage if row.action == Action.CONNECTIONS)
    assert 1 <= seconds <= 4
    assert "weir_metering_flushes_total" in shown
    assert "weir_metering_working 1.0" in shown
