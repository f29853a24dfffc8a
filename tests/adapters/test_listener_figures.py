"""What is counted of a listener."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from adapters import listener_figures
from adapters.listener_figures import BOUNDS_MS, LINES_MAX, ListenerFigures
from gateway.admin.metrics.process_metrics import listener_metrics


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


@dataclass
class Shown:
    id: str
    peer: str = "192.0.2.1:5"
    tenant: str = "default"
    user: str = "guest"
    client_id: str = ""
    client: str = ""


class Connection:
    asked = 0

    def shown(self) -> Shown:
        Connection.asked += 1
        return Shown("amqp-1")


class Log:
    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def info(self, event: str, **facts: Any) -> None:
        self.lines.append({"event": event, **facts})


def test_a_publish_falls_into_the_bucket_of_its_time() -> None:
    clock = Clock()
    figures = ListenerFigures("amqp", "tcp", clock)
    for took_ms in (0, 1, 2, 3, 10_000, 60_000):
        began_ms = figures.now_ms()
        clock.now_ms += took_ms
        figures.stored(began_ms)
    rows, sum_s = figures.histogram()
    assert sum_s == 70.006
    assert [bound for bound, _ in rows] == [*(str(each / 1_000) for each in BOUNDS_MS), "+Inf"]
    found = dict(rows)
    assert (found["0.001"], found["0.002"], found["0.005"]) == (2, 3, 4)
    assert (found["5.0"], found["10.0"], found["+Inf"]) == (4, 5, 6)


def test_a_storm_of_logins_is_counted_and_does_not_flood_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, log = Clock(), Log()
    monkeypatch.setattr(listener_figures, "_log", log)
    Connection.asked = 0
    figures = ListenerFigures("amqp", "tcp", clock)
    for _ in range(10 * LINES_MAX):
        figures.signed_in(cast("Any", Connection()))
    assert figures.signed_in_total == 10 * LINES_MAX
    assert len(log.lines) == Connection.asked == LINES_MAX
    clock.now_ms = 60_000
    figures.signed_in(cast("Any", Connection()))
    assert log.lines[-1]["unlogged"] == 9 * LINES_MAX
    assert log.lines[-1]["listener"] == "amqp.tcp"


def test_rows_of_reasons_are_there_from_the_start_and_others_are_a_bug() -> None:
    figures = ListenerFigures("amqp", "tcp", Clock(), ("login",))
    assert figures.refused == {"login": 0}
    figures.refuse("login")
    assert figures.refused == {"login": 1}
    with pytest.raises(KeyError):
        figures.refuse("no such reason")


def test_each_listener_has_its_own_rows() -> None:
    both = [ListenerFigures("mqtt", name, Clock()) for name in ("tcp", "websocket")]
    both[0].entered()
    both[1].entered()
    both[1].left()
    found = {
        (sample.name, sample.labels["listener"]): sample.value
        for metric in listener_metrics(both)
        for sample in metric.samples
    }
    assert found["weir_listener_connections", "mqtt.tcp"] == 1
    assert found["weir_listener_connections", "mqtt.websocket"] == 0
    assert found["weir_listener_connections_opened_total", "mqtt.websocket"] == 1
