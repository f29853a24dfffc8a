"""Metrics of this process in Prometheus' text form, read from plain integers at scrape.

Nothing is counted here: every figure lives where the work is done, as a plain integer
(docs/design/hot-path.md#what-things-cost). Labels are few and bounded: `protocol`, `limit`,
`listener`, `reason`; `tenant` where a limit has done something.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_open_metrics
from prometheus_client.registry import Collector

import gateway
from adapters.lingering import LINGERING
from gateway.admin.metrics.series_text import END, TextForm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from prometheus_client.metrics_core import Metric

    from adapters.base import Adapter
    from adapters.fair_scheduler import FairScheduler
    from adapters.listener_figures import ListenerFigures
    from adapters.memory import GatewayMemory
    from auth.password_checks.passwords import CheckStatistics
    from gateway.access.tls_failures import TlsFailures
    from gateway.reporting.audit import AuditTrail
    from gateway.reporting.node_metering import NodeMetering
    from kernel.quotas.accounts import Quotas


class NodeCollector(Collector):
    """Figures of one process that clients meet."""

    def __init__(
        self,
        below: Collector,
        adapters: Sequence[Adapter] = (),
        metering: NodeMetering | None = None,
        tls_failures: TlsFailures | None = None,
        logins: Callable[[], CheckStatistics] | None = None,
        memory: GatewayMemory | None = None,
        quotas: Quotas | None = None,
        sharing: FairScheduler | None = None,
        audit: Callable[[], AuditTrail | None] = lambda: None,
    ) -> None:
        """`below`: figures of the store, or of the way to the stores."""
        self._audit = audit
        self._sharing = sharing
        self._logins = logins
        self._below = below
        self._memory = memory
        self._quotas = quotas
        self._tls_failures = tls_failures
        self._adapters = adapters
        self._metering = metering

    def collect(self) -> Iterator[Metric]:
        """Every metric with its value now."""
        yield build_info()
        yield from self._below.collect()
        yield from self._protocols()
        if self._memory is not None:
            yield from memory_metrics(self._memory)
        if self._quotas is not None:
            yield limits_metric(self._quotas)
        if self._sharing is not None:
            yield from sharing_metrics(self._sharing)
        audit = self._audit()
        if audit is not None:
            text = "Changes by the admin API: whether the audit topic has them."
            audited = CounterMetricFamily("weir_audit_entries", text, labels=["outcome"])
            audited.add_metric(["noted"], audit.noted)
            audited.add_metric(["missed"], audit.missed)
            yield audited
        if self._tls_failures is not None:
            text = "TLS handshakes that came to nothing."
            family = CounterMetricFamily("weir_tls_failures", text, labels=["listener"])
            for listener, count in self._tls_failures.counts.items():
                family.add_metric([listener], count)
            yield family
        if self._logins is not None:
            yield from login_metrics(self._logins())
        if self._metering is not None:
            yield from metering_metrics(self._metering)

    def _protocols(self) -> Iterator[Metric]:
        gauge = GaugeMetricFamily("weir_connections", "Connections open.", labels=["protocol"])
        counters: dict[str, CounterMetricFamily] = {}
        gauges: dict[str, GaugeMetricFamily] = {}
        text = "Requests refused and connections closed for what a client did."
        refused = CounterMetricFamily("weir_refused", text, labels=["listener", "reason"])
        listeners: list[ListenerFigures] = []
        for adapter in self._adapters:
            figures = adapter.statistics()
            gauge.add_metric([adapter.name], figures.connections)
            for name, value in figures.counters.items():
                family = counters.setdefault(
                    name,
                    CounterMetricFamily(
                        f"weir_adapter_{name}", f"{name} of an adapter.", labels=["protocol"]
                    ),
                )
                family.add_metric([adapter.name], value)
            for name, value in figures.gauges.items():
                shown = gauges.setdefault(
                    name,
                    GaugeMetricFamily(
                        f"weir_adapter_{name}", f"{name} of an adapter.", labels=["protocol"]
                    ),
                )
                shown.add_metric([adapter.name], value)
            for labels, value in figures.refused.items():
                refused.add_metric(labels, value)
            for listener in figures.listeners:
                for reason, value in listener.refused.items():
                    refused.add_metric((listener.name, reason), value)
            listeners += figures.listeners
        for labels, value in self._memory.refused.items() if self._memory is not None else ():
            refused.add_metric(labels, value)
        yield gauge
        yield refused
        yield from listener_metrics(listeners)
        text = "Connections that have ended and whose last words the client has time to read."
        yield GaugeMetricFamily("weir_connections_lingering", text, value=len(LINGERING))
        text = "Connections that were closed without that, since so many had it."
        yield CounterMetricFamily("weir_connections_cut_short", text, value=LINGERING.refused)
        yield from counters.values()
        yield from gauges.values()


def listener_metrics(listeners: Sequence[ListenerFigures]) -> Iterator[Metric]:
    """Of each listener: connections, and how long it takes until a publisher hears ok."""
    label = ["listener"]
    text = "Connections open (RocketMQ: telemetry streams, of which each client has one)."
    is_open = GaugeMetricFamily("weir_listener_connections", text, labels=label)
    text = "Connections that came, refused ones too."
    opened = CounterMetricFamily("weir_listener_connections_opened", text, labels=label)
    text = "Of these, those whose client has signed in."
    signed_in = CounterMetricFamily("weir_listener_connections_signed_in", text, labels=label)
    text = "From when publishes were read until they are stored and answered with ok."
    took = HistogramMetricFamily("weir_listener_publish_seconds", text, labels=label)
    for each in listeners:
        is_open.add_metric([each.name], each.connections)
        opened.add_metric([each.name], each.opened)
        signed_in.add_metric([each.name], each.signed_in_total)
        buckets, sum_s = each.histogram()
        took.add_metric([each.name], buckets, sum_s)
    yield from (is_open, opened, signed_in, took)


def build_info() -> Metric:
    """Which version this is."""
    return GaugeMetricFamily("weir_build_info", f"Weir {gateway.__version__}.", value=1)


def login_metrics(figures: CheckStatistics) -> Iterator[Metric]:
    """What has become of logins by password."""
    text = "Logins by password: what they came to."
    family = CounterMetricFamily("weir_logins", text, labels=["outcome"])
    for outcome, value in (
        ("recalled", figures.recalled),
        ("right", figures.checked_right),
        ("wrong", figures.checked_wrong),
        ("failed", figures.failed),
        ("busy", figures.refused_busy - figures.turned_away),
        ("turned_away", figures.turned_away),
    ):
        family.add_metric([outcome], value)
    yield family
    text = "Logins that had to wait because the ones before them failed."
    yield CounterMetricFamily("weir_logins_delayed", text, figures.delayed)
    text = "Pairs of an address and a user of which a login has failed of late."
    yield GaugeMetricFamily("weir_login_suspects", text, figures.suspects)
    text = "Password checks that run or wait."
    yield GaugeMetricFamily("weir_password_checks_pending", text, figures.pending)


def memory_metrics(memory: GatewayMemory) -> Iterator[Metric]:
    """What clients make this process hold, and may."""
    for name, text, pool in (
        ("unfinished_input", "requests and messages of which only a part has come", memory.input),
        ("unread_output", "what clients were sent and do not read", memory.output),
    ):
        yield GaugeMetricFamily(f"weir_{name}_bytes", f"Bytes of {text}.", value=pool.bytes)
        yield GaugeMetricFamily(
            f"weir_{name}_bytes_max", f"Most bytes of {text}.", value=pool.bytes_max
        )
        yield GaugeMetricFamily(
            f"weir_{name}_connections", f"Connections with {text}.", value=pool.holders
        )


def sharing_metrics(sharing: FairScheduler) -> Iterator[Metric]:
    """How reading is shared out among tenants."""
    text = "1 while several tenants are active, whose input is taken in turn."
    yield GaugeMetricFamily("weir_reading_shared", text, value=sharing.is_shared)
    text = "Tenants whose input waits for its turn."
    yield GaugeMetricFamily("weir_reading_tenants_waiting", text, value=sharing.waiting)
    counts = sharing.counts
    for name, text, value in (
        ("begun", "Times that reading began to be shared out among tenants.", counts.shared),
        ("parts", "Parts of input that were taken when it was their turn.", counts.parts),
        ("commits_awaited", "Times that all who waited had their part of a commit.", counts.held),
        ("commits_overdue", "Of these, the times that it took too long.", counts.forced),
    ):
        yield CounterMetricFamily(f"weir_reading_shared_{name}", text, value=value)


def limits_metric(quotas: Quotas) -> Metric:
    """What limits have delayed, refused and dropped."""
    text = "Reads and calls delayed, messages and requests refused, messages dropped, by a limit."
    family = CounterMetricFamily("weir_limited", text, labels=["tenant", "limit", "outcome"])
    for (tenant, reason, outcome), count in quotas.counts.items():
        family.add_metric([tenant, reason, outcome.value], count)
    return family


def metering_metrics(metering: NodeMetering) -> Iterator[Metric]:
    """Figures of the metering."""
    figures = metering.statistics()
    forgotten = metering.forgotten()
    for name, text, value in (
        ("flushes", "Flushes made to __metering.", figures.flushes),
        ("flushes_repeated", "Flushes sent again without an answer.", figures.flushes_repeated),
        ("rows", "Rows flushed.", figures.rows_flushed),
        ("rows_given_up", "Rows that a fence cost.", figures.rows_given_up),
        ("messages_forgotten", "Messages of deleted topics that went unbilled.", forgotten),
    ):
        yield CounterMetricFamily(f"weir_metering_{name}", text, value=value)
    for name, text, value in (
        ("rows_waiting", "Rows that wait for their flush.", figures.rows_waiting),
        ("age_seconds", "Age of the oldest count that is in no log.", figures.age_us // 1_000_000),
        ("working", "1 if traffic is metered and exported.", not metering.failure),
    ):
        yield GaugeMetricFamily(f"weir_metering_{name}", text, value=float(value))


class _One(Collector):
    """A metric that was looked at."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric


def render(collector: Collector, form: TextForm = TextForm.PLAIN) -> Iterator[bytes]:
    """The text that a scrape gets, without the line that ends OpenMetrics: a metric at a time, each
    made when it is asked for (0.01 to 0.1 ms; all together would be one turn of the event loop of
    2 ms). All are looked at before, in one turn.
    """
    metrics = list(collector.collect())
    return (_text_of(each, form) for each in metrics)


def _text_of(metric: Metric, form: TextForm) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_One(metric))
    if form is TextForm.PLAIN:
        return generate_latest(registry)
    text: bytes = generate_open_metrics(registry)  # type: ignore[no-untyped-call]
    return text.removesuffix(END)
