"""The admin side as one application: health and metrics at the top, the API below /api/v1.

A process that serves clients has the whole API; a store of a cluster has that of the cluster alone.

Health and metrics: `health`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Mount, Route

from adapters.limiting import Limiter
from auth.errors import AuthError
from gateway.admin.console.pages import Pages
from gateway.admin.console.session_routes import SessionRoutesOfConsole
from gateway.admin.health import HealthRoutes
from gateway.admin.http.errors import http_error, internal_error, kernel_or_auth_error
from gateway.admin.http.guard import Guard
from gateway.admin.http.operations import bound, for_operators, route
from gateway.admin.openapi import API_PATH, Description
from gateway.admin.operations import API, TOP
from gateway.admin.resources.access import AccessRoutes
from gateway.admin.resources.audit import AuditRoutes
from gateway.admin.resources.backups import BackupRoutes, Pinning
from gateway.admin.resources.cluster import Admission, ClusterRoutes, FeatureRoutes
from gateway.admin.resources.connections import ConnectionRoutes
from gateway.admin.resources.consuming import ConsumingRoutes
from gateway.admin.resources.definitions import DefinitionRoutes
from gateway.admin.resources.events import EventRoutes
from gateway.admin.resources.history import HistoryRoutes
from gateway.admin.resources.limits import LimitRoutes
from gateway.admin.resources.local_connections import LocalConnections
from gateway.admin.resources.messages import MessageRoutes
from gateway.admin.resources.metering import MeteringRoutes
from gateway.admin.resources.moves import MoveRoutes
from gateway.admin.resources.node import NodeRoutes
from gateway.admin.resources.routers import RouterRoutes
from gateway.admin.resources.sessions import SessionRoutes
from gateway.admin.resources.settings import SettingRoutes
from gateway.admin.resources.tenant_changes import TenantRoutes
from gateway.admin.resources.tenants import KnownTenants
from gateway.admin.resources.topic_traces import TopicTraceRoutes
from gateway.admin.resources.topics import TopicRoutes
from gateway.admin.resources.tracing import TraceRoutes
from gateway.admin.resources.users import PrincipalRoutes
from gateway.config.declared import names_by_origin
from gateway.config.tenants import words_in
from kernel.common.errors import Code, KernelError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp

    from adapters.base import Adapter, Declaration
    from adapters.memory import GatewayMemory
    from auth.private_files.tokens import AdminToken
    from gateway.access.disconnects import Disconnects
    from gateway.access.identity import Identity
    from gateway.access.limit_records import LimitRecords
    from gateway.access.tenant_book import TenantBook
    from gateway.access.tenant_removal import TenantRemoval
    from gateway.admin.console.browser_sessions import BrowserSessions
    from gateway.admin.metrics.history import History
    from gateway.admin.metrics.topic_metrics import TopicMetrics
    from gateway.admin.resources.declared_shapes import DeclaredShapes
    from gateway.admin.resources.principals import Principals
    from gateway.config.loading import Loaded
    from gateway.config.schema import Listener
    from gateway.reporting.audit import AuditTrail
    from gateway.reporting.node_metering import NodeMetering
    from kernel.api.client import Client
    from kernel.cluster.cluster_admin import ClusterAdmin
    from kernel.cluster.local_features import LocalFeatures
    from kernel.common.ports import Clock
    from kernel.quotas.accounts import Quotas
    from kernel.remote.mesh.questions import Questions
    from kernel.store.space.disk_watch import DiskSpace

NO_CONSOLE_HERE = (
    "This is a store of a cluster. The console, with the bill of what all stores have counted, is "
    "at the gateways: open the admin address of one (node.admin in its settings; its log says it "
    "as it starts)."
)
NO_CONSOLE_YET = (
    "This gateway has not found its cluster yet: the console is here once it has. `weir health` "
    "says what it waits for."
)

METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


def _elsewhere(path: str, code: Code, message: str) -> Route:
    """A path that another process serves, or this one at another time; the answer says which."""

    async def refuse(_request: Request) -> Response:
        raise KernelError(code, message)

    return for_operators(path, METHODS, refuse)


NO_CLUSTER = [
    _elsewhere(each, Code.NOT_FOUND, "this is `weir serve`, which belongs to no cluster")
    for each in ("/cluster", "/cluster/{_:path}")
]
ASK_A_GATEWAY = _elsewhere(
    "/{_:path}",
    Code.NOT_FOUND,
    "this is a store, which has /health, /cluster and /backups: ask a gateway",
)
NOT_YET = _elsewhere(
    "/{_:path}", Code.UNAVAILABLE, "this gateway serves nobody yet: see `weir health`"
)


@dataclass(frozen=True, slots=True)
class AdminParts:
    """What the admin side is made of."""

    client: Client
    principals: Principals
    identity: Identity
    token: AdminToken
    health: HealthRoutes
    clock: Clock
    tenants: TenantBook
    removal: TenantRemoval
    shapes: DeclaredShapes
    """What the adapters have to say of topics and groups."""
    limits: LimitRecords
    quotas: Quotas
    declared: Mapping[str, Declaration]
    """All adapters that the settings name, by protocol."""
    disconnects: Disconnects
    node_name: str
    """What this process is called."""
    audit: AuditTrail
    metering: NodeMetering | None = None
    """None: switched off."""
    cluster_admin: ClusterAdmin | None = None
    """None: it belongs to no cluster."""
    features: LocalFeatures | None = None
    """Of the log, if it belongs to no cluster."""
    pinning: Pinning | None = None
    """None: no backup can be made of it."""
    adapters: Sequence[Adapter] = ()
    """Those that are served."""
    sessions: BrowserSessions | None = None
    """None: there is no console."""
    topics: TopicMetrics | None = None
    """Of all topics; None: they are led in other processes."""
    questions: Questions | None = None
    """To the other gateways; None: there are none."""
    loaded: Loaded | None = None
    """The settings, with where they come from; None: they are not shown."""
    history: History | None = None
    """None: none is kept."""
    disk: Callable[[], DiskSpace] | None = None
    """None: there is no store here."""
    memory: GatewayMemory | None = None
    """What clients make this process hold."""


@dataclass(frozen=True, slots=True)
class StoreParts:
    """What the admin side of a store is made of."""

    token: AdminToken
    health: HealthRoutes
    cluster_admin: ClusterAdmin
    admission: Admission
    pinning: Pinning
    clock: Clock


def _connections(parts: AdminParts, tenants: KnownTenants) -> ConnectionRoutes:
    """Those of this process, which other gateways may ask for, and of all others."""
    own = LocalConnections(parts.adapters, parts.node_name, in_cluster=parts.questions is not None)
    if parts.questions is not None:
        own.answer(parts.questions)
    return ConnectionRoutes(own, tenants, parts.disconnects, parts.questions)


def _definitions(parts: AdminParts, tenants: KnownTenants) -> DefinitionRoutes:
    return DefinitionRoutes(
        parts.client,
        parts.principals,
        parts.limits,
        tenants,
        parts.declared,
        parts.tenants,
        parts.cluster_admin or parts.features,
    )


def build_app(listener: Listener, parts: AdminParts) -> Guard:
    """The application of one listener, behind its guard."""
    words = words_in(parts.declared)
    tenants = KnownTenants(parts.tenants, parts.principals.store, words)
    limiter = Limiter("admin", parts.quotas, parts.client, parts.clock)
    writers = names_by_origin(parts.declared)
    messages = MessageRoutes(parts.client, parts.clock, tenants, writers, limiter)
    features = parts.cluster_admin or parts.features
    resources: list[object] = [
        tenants,
        TenantRoutes(
            tenants,
            parts.tenants,
            parts.limits,
            parts.client,
            words,
            features,
            parts.removal,
        ),
        TopicRoutes(parts.client, parts.clock, tenants, parts.adapters, parts.shapes, parts.topics),
        RouterRoutes(parts.client, tenants),
        messages,
        ConsumingRoutes(parts.client, tenants, messages),
        MoveRoutes(parts.client, tenants),
        SessionRoutes(parts.client, tenants, parts.declared),
        _connections(parts, tenants),
        PrincipalRoutes(parts.principals, tenants),
        AccessRoutes(parts.identity, tenants),
        _definitions(parts, tenants),
        LimitRoutes(parts.limits, parts.quotas, parts.client, parts.tenants.tenants),
        MeteringRoutes(parts.metering, tenants),
        SettingRoutes(parts.loaded),
        EventRoutes(),
        HistoryRoutes(parts.history, parts.client, tenants),
        NodeRoutes(parts.node_name, parts.clock, parts.adapters, parts.disk, parts.memory),
        Pages(),
        AuditRoutes(parts.audit),
        TraceRoutes(parts.client, parts.clock, tenants, messages),
        TopicTraceRoutes(parts.client, parts.clock, tenants, names_by_origin(parts.declared)),
    ]
    if parts.sessions is not None:
        in_cluster = parts.cluster_admin is not None
        resources.append(
            SessionRoutesOfConsole(parts.sessions, tenants, parts.node_name, in_cluster=in_cluster)
        )
    elsewhere: Sequence[Route] = ()
    if parts.cluster_admin is not None:
        resources += [
            ClusterRoutes(parts.cluster_admin, None),
            FeatureRoutes(parts.cluster_admin),
        ]
    else:
        elsewhere = NO_CLUSTER
        if parts.features is not None:
            resources.append(FeatureRoutes(parts.features))
    if parts.pinning is not None:
        resources.append(BackupRoutes(parts.pinning, parts.clock))
    application = _application(parts.health, resources, elsewhere)
    application.state.audit = parts.audit
    return Guard(
        application,
        listener,
        parts.token,
        parts.identity,
        tenants.has,
        parts.sessions,
        tenants.some_for,
    )


def build_store_app(listener: Listener, parts: StoreParts) -> ASGIApp:
    """The application of a store's listener: only the token opens it."""
    resources = (
        ClusterRoutes(parts.cluster_admin, parts.admission),
        FeatureRoutes(parts.cluster_admin),
        BackupRoutes(parts.pinning, parts.clock),
        EventRoutes(),
        Pages(NO_CONSOLE_HERE),
    )
    application = _application(parts.health, resources, [ASK_A_GATEWAY])
    return Guard(application, listener, parts.token, None)


def build_waiting_app(listener: Listener, token: AdminToken, health: HealthRoutes) -> ASGIApp:
    """The application of a process that does not serve yet: its health and no more."""
    application = _application(health, (Pages(NO_CONSOLE_YET, 503),), [NOT_YET])
    return Guard(application, listener, token, None)


def _application(
    health: HealthRoutes, resources: Sequence[object], elsewhere: Sequence[Route]
) -> Starlette:
    """`elsewhere`: routes of what is not served here, which say so."""
    description = Description()
    api = bound(API, (health, description, *resources))
    description.operations = [operation for operation, _ in api]
    app = Starlette(
        routes=[
            *(route(*each) for each in bound(TOP, (health, *resources))),
            Mount(API_PATH, routes=[*(route(*each) for each in api), *elsewhere]),
        ],
        exception_handlers={
            KernelError: kernel_or_auth_error,
            AuthError: kernel_or_auth_error,
            HTTPException: http_error,
            Exception: internal_error,
        },
    )
    app.router.redirect_slashes = False
    return app
