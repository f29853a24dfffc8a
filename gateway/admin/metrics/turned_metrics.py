"""Figures of the listener by which processes of a cluster reach this one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from kernel.rpc.link import Acceptor


def turned_metrics(acceptor: Acceptor) -> Iterator[Metric]:
    """Who is at the door, and who was turned away."""
    yield GaugeMetricFamily(
        "weir_cluster_connections_unproven",
        "Connections from other processes that have not proved that they belong to the cluster.",
        value=acceptor.unproven,
    )
    turned = CounterMetricFamily(
        "weir_cluster_turned_away",
        "Connections that were closed because they did not prove it, by reason.",
        labels=["reason"],
    )
    for why, count in acceptor.turned.items():
        turned.add_metric([why.value], count)
    yield turned
