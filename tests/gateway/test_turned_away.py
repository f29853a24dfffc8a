"""Processes that a cluster's listeners turn away are in the log, a bounded number of times."""

from __future__ import annotations

from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from adapters.line_budget import PERIOD_MS
from gateway.access.turned_away import LINES_MAX, REASON_CHARACTERS_MAX, TurnedAway
from gateway.admin.metrics.turned_metrics import turned_metrics
from kernel.rpc.link import Acceptor, Turned


class Hand:
    """A clock set by hand."""

    now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


def told(lines: list[Any]) -> list[tuple[str, str, int]]:
    return [(each["peer"], each["reason"], each["unlogged"]) for each in lines]


def test_each_host_and_reason_has_a_line_a_minute() -> None:
    clock = Hand()
    with capture_logs() as lines:
        turned_away = TurnedAway(structlog.get_logger(), clock)
        for port in range(1, 31):
            turned_away(("10.0.0.1", port), "the secret")
        turned_away(("10.0.0.1", 99), "the name")
        turned_away(("::1", 99), "the secret")
        clock.now_ms = PERIOD_MS - 1
        turned_away(("10.0.0.1", 100), "the secret")
        clock.now_ms = PERIOD_MS
        turned_away(("10.0.0.1", 101), "the secret")
    assert told(lines) == [
        ("10.0.0.1:1", "the secret", 0),
        ("10.0.0.1:99", "the name", 29),
        ("[::1]:99", "the secret", 0),
        ("10.0.0.1:101", "the secret", 1),
    ]
    assert {each["log_level"] for each in lines} == {"warning"}


def test_all_together_have_a_bounded_number_of_lines_and_the_rest_is_counted() -> None:
    clock = Hand()
    with capture_logs() as lines:
        turned_away = TurnedAway(structlog.get_logger(), clock)
        for number in range(LINES_MAX + 70):
            turned_away(("10.0.0.1", 1), f"reason {number}")
        assert len(lines) == LINES_MAX
        clock.now_ms = PERIOD_MS
        turned_away(("10.0.0.1", 1), "another")
    assert told(lines)[-1] == ("10.0.0.1:1", "another", 70)


def test_what_a_stranger_says_is_short_and_printable() -> None:
    with capture_logs() as lines:
        TurnedAway(structlog.get_logger(), Hand())(("10.0.0.1", 1), "a\nb\x1b[31m" + "c" * 9_000)
    (line,) = told(lines)
    assert line[1].startswith("a?b?[31mccc")
    assert len(line[1]) == REASON_CHARACTERS_MAX


def test_every_reason_has_its_row_from_the_start() -> None:
    acceptor = Acceptor(lambda _: pytest.fail("nobody has come"), Hand(), None, 1)

    gauge, turned = turned_metrics(acceptor)

    assert (gauge.name, [each.value for each in gauge.samples]) == (
        "weir_cluster_connections_unproven",
        [0],
    )
    rows = {each.labels["reason"]: each.value for each in turned.samples}
    assert rows == dict.fromkeys(map(str, Turned), 0)
