"""Figures of what a store does for gateways and other stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from kernel.remote.serving import StoreService
    from kernel.remote.streams.gateways import StreamFigures


def stream_rows(figures: StreamFigures) -> list[tuple[str, str, int]]:
    """(name, text, value) of what has been counted of the streams of a store, or of a gateway."""
    return [
        ("attached", "Streams begun.", figures.attached),
        ("refused", "Streams refused: a gateway has too many.", figures.over_streams),
        ("fenced", "Streams of subscribers that came back by another gateway.", figures.fenced),
        ("paused", "Times that too much waited for a slow gateway.", figures.paused),
        ("returned", "Messages lost on the way to gateways that came back.", figures.returned),
        ("released", "Messages taken back from gateways that are gone.", figures.released),
    ]


class ServiceFigures(Collector):
    """Figures of the push streams of one store, and of what it has refused."""

    def __init__(self, service: StoreService) -> None:
        self._service = service
        self._streams = service.streams

    def collect(self) -> Iterator[Metric]:
        """Every metric with its value now."""
        yield GaugeMetricFamily(
            "weir_streams", "Streams by which gateways consume here.", value=self._streams.count
        )
        for name, text, value in stream_rows(self._streams.figures):
            yield CounterMetricFamily(f"weir_streams_{name}", text, value=value)
        refused = CounterMetricFamily(
            "weir_store_refused",
            "What gateways and stores asked for that was above a limit: they ask again.",
            labels=["limit"],
        )
        for limit, count in self._service.refused().items():
            refused.add_metric([limit], count)
        yield refused
