"""The meter as an adapter sees it."""

from __future__ import annotations

from metering import traffic as module
from metering.counters import Meter, measure_slots
from metering.schema import Action, Outcome, QueueClass
from metering.traffic import Traffic
from metering.window import RowKey, RowValues
from tests.metering.samples import START_US


class Clock:
    now_us = START_US

    def __call__(self) -> int:
        return self.now_us


def rows(meter: Meter, until_us: int = 1) -> dict[RowKey, RowValues]:
    window = meter.close(START_US + until_us)
    return {} if window is None else window.rows


def test_every_row_has_the_protocol_and_its_own_action() -> None:
    meter = Meter(START_US)
    amqp = Traffic(meter, "amqp", Clock())
    amqp.delivery_counter("acme", "orders", "default", QueueClass.QOS1).count(2, 300, 2)
    amqp.call_counter("acme", Action.RECEIVE, "ReceiveMessage", Outcome.EMPTY).call(10, 70_000)
    amqp.unroutable_counter("acme").count_one(5)
    amqp.octet_counter("acme").octets(7, 8)
    found = {(key.protocol, key.action, key.outcome): value for key, value in rows(meter).items()}
    assert found["amqp", "deliver", "ok"].bytes_out == 300
    assert found["amqp", "receive", "empty"].units_64k == 2
    assert found["amqp", "publish", "empty"].messages == 1
    octets = found["amqp", "connect", "ok"]
    assert (octets.requests, octets.bytes_in, octets.bytes_out) == (0, 7, 8)


def test_deliveries_by_timed_lease_are_left_to_the_store() -> None:
    meter = Meter(START_US)
    sqs = Traffic(meter, "sqs", Clock(), leases_are_timed=True)
    sqs.delivery_counter("acme", "orders", "default").count(2, 300, 2)
    assert rows(meter) == {}


def test_connections_are_a_level_over_time() -> None:
    clock, meter = Clock(), Meter(START_US)
    amqp = Traffic(meter, "amqp", clock)
    for step_s, change in ((0, 1), (1, 1), (1, -1), (2, -1), (0, -1)):
        clock.now_us += step_s * 1_000_000
        (amqp.connection_opened if change > 0 else amqp.connection_closed)("acme")
    found = {key.action: value for key, value in rows(meter, 9_000_000).items()}
    level = found["connections"]
    assert (level.gauge_max, level.gauge_integral) == (2, 1 + 2 + 2)
    assert found["connect"].requests == 2


def test_call_counters_are_kept_up_to_a_bound(monkeypatch) -> None:
    monkeypatch.setattr(module, "CALL_HANDLES_MAX", 2)
    meter = Meter(START_US)
    sqs = Traffic(meter, "sqs", Clock())
    assert sqs.call_counter("a", "admin", "X") is sqs.call_counter("a", "admin", "X")
    for name in ("X", "Y", "Z", "X"):
        sqs.call_counter("a", "admin", name).call(1, 1)
    assert {key.api_action: value.requests for key, value in rows(meter).items()} == {
        "X": 2,
        "Y": 1,
        "Z": 1,
    }


def test_sizes_are_those_that_the_state_machine_counts() -> None:
    assert measure_slots([bytes(72), bytes(72 + 4_096), bytes(72 + 4_097)]) == (8_193, 4)
