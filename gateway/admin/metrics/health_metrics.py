"""The checks of `weir health` as figures: what is wrong, and what somebody should look at.

An alarm is a check that is passed and has a reason. Reasons are words, and stand in `weir health`
and in events; a figure only says that there is one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from prometheus_client.metrics_core import Metric

    from gateway.admin.health import Check


class HealthFigures(Collector):
    """Figures of a process, with its checks before them."""

    def __init__(self, checks: Callable[[], Sequence[Check]], below: Collector) -> None:
        """`checks()`: as `weir health` shows them, looked at now; `below`: all other figures."""
        self._checks = checks
        self._below = below

    def collect(self) -> Iterator[Metric]:
        """Every metric with its value now."""
        label = ["check"]
        passed = GaugeMetricFamily("weir_health_ok", "1: the check is passed.", labels=label)
        text = "1: it is passed, and somebody should look (`weir health` says why)."
        alarm = GaugeMetricFamily("weir_health_alarm", text, labels=label)
        for each in self._checks():
            passed.add_metric([each.name], each.ok)
            alarm.add_metric([each.name], each.ok and bool(each.reason))
        yield from (passed, alarm)
        yield from self._below.collect()
