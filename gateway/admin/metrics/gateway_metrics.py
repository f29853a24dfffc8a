"""Figures of a gateway's way to the stores, and whether it is open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from gateway.admin.health import Check
from gateway.admin.metrics.service_metrics import stream_rows
from gateway.admin.metrics.turned_metrics import turned_metrics
from kernel.common.ids import RaftGroup

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from gateway.reporting.heartbeat_reports import HeartbeatReporter
    from kernel.remote.client import ClusterClient
    from kernel.remote.leader_calls.leaders import RemoteLeaders
    from kernel.remote.mesh.meeting import MeetingPoint


def stores_check(remote: RemoteLeaders) -> Check:
    """Whether there is a way to the leader of every Raft group."""
    unreached = "; ".join(
        f"store {number}: {remote.last_error(number) or 'no answer yet'}"
        for number in remote.nodes
        if number not in remote.connected
    )
    if not remote.connected:
        return Check("stores", ok=False, reason=f"no store can be reached: {unreached}")
    groups = remote.table.groups
    lost = [group for group in groups if remote.channel_to(RaftGroup(group)) is None]
    if lost:
        names = ", ".join(map(str, lost))
        also = f" ({unreached})" if unreached else ""
        reason = f"no leader can be reached of Raft group {names}{also}"
        return Check("stores", ok=False, reason=reason)
    return Check("stores", ok=bool(groups), reason=unreached)


class GatewayFigures(Collector):
    """Figures of one gateway; `client` None: it does not serve yet."""

    def __init__(
        self,
        remote: RemoteLeaders,
        client: ClusterClient | None,
        heartbeat_reporter: HeartbeatReporter | None = None,
        meeting: MeetingPoint | None = None,
    ) -> None:
        """`heartbeat_reporter`: None where no manager is told of it; `meeting`: None where no other
        gateway
        can reach it.
        """
        self._meeting = meeting
        self._remote = remote
        self._client = client
        self._heartbeat_reporter = heartbeat_reporter

    def collect(self) -> Iterator[Metric]:
        """Every metric with its value now."""
        remote, client = self._remote, self._client
        groups = remote.table.groups
        lost = sum(remote.channel_to(RaftGroup(group)) is None for group in groups)
        connected = len(remote.connected)
        gauges = [
            ("weir_gateway_stores_connected", "Stores that can be reached.", connected),
            ("weir_gateway_groups_unreached", "Raft groups without a way to their leader.", lost),
        ]
        counters = [
            ("weir_gateway_lanes_broken", "Rows of calls sent again.", remote.lanes_broken),
        ]
        if client is not None:
            gauges += _mesh_gauges(client)
            counters += _mesh_counters(client)
            gauges += [
                (
                    "weir_gateway_volatile_bytes",
                    "Bytes of transient topics.",
                    client.transient.log.bytes,
                ),
                (
                    "weir_gateway_streams",
                    "Queues and lists that are consumed from stores and other gateways.",
                    client.streams.count,
                ),
                ("weir_store_accepting", "1 if new messages are taken.", int(client.accepting)),
            ]
            counters += [
                (
                    "weir_gateway_feeds",
                    "Times that the definitions of a Raft group were asked for anew.",
                    client.definitions.subscribed,
                ),
                (
                    "weir_trace_events_dropped",
                    "Events of traced topics that could not be written down.",
                    client.trace.buffer.dropped,
                ),
                (
                    "weir_gateway_definitions_late",
                    "Changes that were made and not seen here in time.",
                    client.definitions.late,
                ),
            ]
        if self._heartbeat_reporter is not None:
            text = "Other gateways whose settings tenants or limits are not this one's."
            gauges.append(
                ("weir_gateway_tenants_unlike", text, self._heartbeat_reporter.unlike_count)
            )
        if self._meeting is not None:
            yield from turned_metrics(self._meeting.acceptor)
        for name, text, value in gauges:
            yield GaugeMetricFamily(name, text, value=float(value))
        for name, text, value in counters:
            yield CounterMetricFamily(name, text, value=value)


Row = tuple[str, str, int]


def _mesh_gauges(client: ClusterClient) -> list[Row]:
    mesh = client.mesh
    return [
        ("weir_gateway_peers", "Other gateways that can be reached.", len(mesh.peers)),
        (
            "weir_gateway_announced",
            "Transient topics, routers, routes and live routes that others are told of.",
            mesh.announcer.announced,
        ),
        (
            "weir_gateway_peers_waiting_bytes",
            "Bytes of messages on their way to the memory of other gateways.",
            client.remote_memory.waiting_bytes,
        ),
        (
            "weir_gateway_consumers_lent",
            "Streams by which other gateways consume from the memory of this one.",
            mesh.stream_service.count,
        ),
    ]


def _mesh_counters(client: ClusterClient) -> list[Row]:
    figures, told = client.remote_memory.figures, client.mesh.announcer.figures
    streams = stream_rows(client.mesh.stream_service.figures)
    return [
        *((f"weir_gateway_consumers_lent_{name}", text, value) for name, text, value in streams),
        (
            "weir_gateway_peers_gone",
            "Other gateways, and stores, that were given up, with what lived in their memory.",
            figures.gone,
        ),
        (
            "weir_gateway_peers_refused",
            "Batches for other gateways that found no room on the way, or whose gateway is gone.",
            figures.refused,
        ),
        (
            "weir_gateway_live_dropped",
            "Messages for subscribers in the memory of other gateways that found no room.",
            figures.live_dropped,
        ),
        ("weir_gateway_announced_refused", "Things that were too many to be told.", told.refused),
        (
            "weir_gateway_announced_late",
            "Times that another process was not waited for until it had been told.",
            told.late,
        ),
        (
            "weir_gateway_changes_refused",
            "Changes and questions of other gateways that were too many at once.",
            client.mesh.inboxes.over_changes,
        ),
        (
            "weir_gateway_questions_refused",
            "Questions of other gateways, such as who is connected, that were too many at once.",
            client.mesh.questions.refused,
        ),
        (
            "weir_gateway_pulls_refused",
            "Pulls of clients that were too many at once.",
            client.pulls.figures.over_pulls,
        ),
    ]
