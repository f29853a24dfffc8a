"""What adapters refuse is counted by listener and reason, and in the log so many times a minute."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import structlog
from structlog.testing import capture_logs

from adapters.base import AdapterStatistics
from adapters.line_budget import PERIOD_MS
from adapters.refused import LINES_MAX, TEXT_CHARACTERS_MAX, Refused
from gateway.admin.metrics.process_metrics import NodeCollector, render


class Reason(StrEnum):
    SKEW = "skew"
    TOO_LARGE = "too_large"


class Hand:
    """A clock set by hand."""

    now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


def of_sqs(clock: Hand) -> Refused[Reason]:
    return Refused(structlog.get_logger(), clock, "sqs", ("http", "https"), Reason)


def test_each_listener_reason_and_host_has_a_line_a_minute() -> None:
    clock = Hand()
    with capture_logs() as lines:
        refused = of_sqs(clock)
        for port in range(1, 31):
            refused.note("http", Reason.SKEW, f"10.0.0.1:{port}", access_key="weir")
        refused.note("http", Reason.TOO_LARGE, "10.0.0.1:31")
        refused.note("https", Reason.SKEW, "[::1]:32")
        clock.now_ms = PERIOD_MS
        refused.note("http", Reason.SKEW, "10.0.0.1:33")
    told = [(each["listener"], each["reason"], each["peer"], each["unlogged"]) for each in lines]
    assert told == [
        ("sqs.http", "skew", "10.0.0.1:1", 0),
        ("sqs.http", "too_large", "10.0.0.1:31", 0),
        ("sqs.https", "skew", "[::1]:32", 29),
        ("sqs.http", "skew", "10.0.0.1:33", 0),
    ]
    assert lines[0]["access_key"] == "weir"
    assert {each["log_level"] for each in lines} == {"warning"}


def test_a_flood_of_one_reason_has_a_bounded_number_of_lines_and_hides_no_other() -> None:
    with capture_logs() as lines:
        refused = of_sqs(Hand())
        for host in range(200):
            refused.note("http", Reason.SKEW, f"10.0.0.{host}:1")
        refused.note("http", Reason.TOO_LARGE, "10.0.0.1:1")
    assert [each["reason"] for each in lines] == ["skew"] * LINES_MAX + ["too_large"]
    assert refused.total() == 201
    assert refused.total(Reason.SKEW) == 200


def test_what_a_stranger_says_is_short_and_printable() -> None:
    with capture_logs() as lines:
        of_sqs(Hand()).note("http", Reason.SKEW, "", access_key="a\nb\x1b[31m" + "c" * 900, tries=3)
    assert lines[0]["access_key"].startswith("a?b?[31mccc")
    assert len(lines[0]["access_key"]) == TEXT_CHARACTERS_MAX
    assert lines[0]["tries"] == 3


class OneAdapter:
    """What `NodeCollector` asks of an adapter."""

    name = "sqs"

    def __init__(self, refused: Refused[Reason]) -> None:
        self._refused = refused

    def statistics(self) -> AdapterStatistics:
        return AdapterStatistics(0, refused=self._refused.counts)


class Nothing:
    """A collector of nothing."""

    def collect(self) -> list[Any]:
        return []


def test_every_listener_and_reason_is_in_the_metrics_from_the_start() -> None:
    refused = of_sqs(Hand())
    refused.note("https", Reason.TOO_LARGE, "10.0.0.1:31")
    adapters: Any = [OneAdapter(refused)]
    below: Any = Nothing()
    text = b"".join(render(NodeCollector(below, adapters))).decode()
    expected: Mapping[tuple[str, str], float] = {
        ("sqs.http", "skew"): 0.0,
        ("sqs.http", "too_large"): 0.0,
        ("sqs.https", "skew"): 0.0,
        ("sqs.https", "too_large"): 1.0,
    }
    for (listener, reason), count in expected.items():
        row = f'weir_refused_total{{listener="{listener}",reason="{reason}"}} {count}'
        assert row in text
