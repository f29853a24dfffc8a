"""Real clients under delays, long polls and bursts: what each received once is billed once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from gateway.reporting.node_metering import ARCHIVE_DIRECTORY
from metering.schema import Action
from spark.reconcile import check_proof
from tests.gateway.serving import serving
from tests.metering.served.drivers import PERSISTENT
from tests.metering.served.once import ALL, ALL_UNITS, TRAFFIC
from tests.metering.served.reading import periods_of, records_of, usage_of
from tests.sqs_client import sqs_client

if TYPE_CHECKING:
    from pathlib import Path

HUGE_MESSAGES, HUGE = 4, 6_000_000
"""More than one answer of SQS may hold."""


@pytest.mark.parametrize("protocol", sorted(TRAFFIC))
def test_each_message_that_was_received_once_is_billed_once(protocol: str, tmp_path: Path) -> None:
    with serving(tmp_path, "node.metering.flush_interval_s=1") as node:
        inbox = TRAFFIC[protocol](node)
        assert set(inbox.got.values()) == {1}
        assert node.api("POST", "/metering/export").json["flushed"]
    records = records_of(tmp_path / ARCHIVE_DIRECTORY)
    rows = [row for row in usage_of(records) if row.protocol == protocol]
    for action in (Action.PUBLISH, Action.DELIVER):
        found = [row for row in rows if row.action == action]
        assert sum(row.messages for row in found) == ALL
        assert sum(row.units_4k for row in found) == ALL_UNITS
    # Calls of the same name, which have octets and no messages, aside.
    sent = sum(row.bytes_in for row in rows if row.action == Action.PUBLISH and row.messages)
    assert sent == sum(row.bytes_out for row in rows if row.action == Action.DELIVER)
    for period in periods_of(records):
        assert check_proof(records, period) == []


def test_messages_that_an_answer_has_no_room_for_are_billed_when_they_are_received(
    tmp_path: Path,
) -> None:
    """SQS: they were leased with the others, and go back. AMQP has such large ones."""
    got: Counter[str] = Counter()
    with serving(tmp_path, "node.metering.flush_interval_s=1") as node:
        sqs = sqs_client(f"http://127.0.0.1:{node.listeners['sqs.http']}")
        with node.amqp() as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("large", durable=True)
            for number in range(HUGE_MESSAGES):
                text = f"{number}".ljust(HUGE, "x")
                channel.basic_publish("", "large", text.encode(), PERSISTENT)
        queue = sqs.get_queue_url(QueueName="large")["QueueUrl"]
        answers = 0
        while got.total() < HUGE_MESSAGES:
            found = sqs.receive_message(
                QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=5
            ).get("Messages", [])
            answers += bool(found)
            got.update(each["Body"].rstrip("x") for each in found)
        sqs.close()
        assert answers > 1
        assert node.api("POST", "/metering/export").json["flushed"]
    assert set(got.values()) == {1}
    records = records_of(tmp_path / ARCHIVE_DIRECTORY)
    assert any(each.action == Action.RETURN for each in records)
    delivered = [row for row in usage_of(records) if row.action == Action.DELIVER]
    assert sum(row.messages for row in delivered) == HUGE_MESSAGES
    sent = [row for row in usage_of(records) if row.action == Action.PUBLISH and row.messages]
    for name in ("units_4k", "messages"):
        total = sum(getattr(row, name) for row in sent)
        assert sum(getattr(row, name) for row in delivered) == total
    assert sum(row.bytes_out for row in delivered) == sum(row.bytes_in for row in sent)
