"""All operations of the admin API: which there are, what each takes of its caller, of what form its
body and its answer are. The routes are made of this table, and the document that tells of them
(`openapi`): what is not here is neither served nor told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta

from adapters.definitions import Definitions
from gateway.admin.console.pages import Pages
from gateway.admin.console.session_routes import (
    SessionRoutesOfConsole,
    SignedIn,
    SignInCode,
)
from gateway.admin.health import Health, HealthRoutes
from gateway.admin.http.callers import Right
from gateway.admin.http.operations import Operation, Parameter
from gateway.admin.http.requests import PAGE_DEFAULT, PAGE_MAX
from gateway.admin.openapi import Description, Document
from gateway.admin.resources import (
    access,
    audit,
    backups,
    cluster,
    connections,
    consuming,
    definitions,
    events,
    history,
    limits,
    local_connections,
    messages,
    metering,
    moves,
    node,
    routers,
    sessions,
    settings,
    tenants,
    topic_traces,
    topics,
    tracing,
    users,
)
from gateway.admin.resources import tenant_changes as changes
from gateway.admin.resources import topic_shapes as shapes
from gateway.definitions.things import KINDS
from gateway.reporting.month_bill import MonthBillShown
from gateway.reporting.node_metering import Exported
from kernel.cluster.cluster_admin import ClusterStatus
from kernel.cluster.messages import FeatureList
from metering.collector import CollectorStatistics

if TYPE_CHECKING:
    from collections.abc import Sequence

OPEN, NODE, TENANT, SOME = Right.OPEN, Right.NODE, Right.TENANT, Right.SOME

AFTER = Parameter("after", "The name after which the page begins: `next` of the page before.")
LIMIT = Parameter(
    "limit",
    f"The most rows; {PAGE_DEFAULT} unless told.",
    Annotated[int, Meta(ge=1, le=PAGE_MAX)],
)
PREFIX = Parameter("prefix", "Only names that begin so.")
PAGE = (PREFIX, AFTER, LIMIT)
WHOSE = Parameter("tenant", "Of the user or topic named; the caller's own unless told.")
USER = Parameter("user", "Whose: all of them, at every gateway that can be reached.")
REASON = Parameter("reason", "What the clients are told.")
ONLY = Parameter("only", f"Kinds, parted by commas; all unless told: {', '.join(KINDS)}.")
IF_UNUSED = Parameter("if_unused", "Only if nobody uses it.", bool)

TOP: Final[Sequence[Operation]] = (
    Operation("GET", "/livez", OPEN, HealthRoutes.live),
    Operation("GET", "/readyz", OPEN, HealthRoutes.ready),
    Operation("GET", "/metrics", NODE, HealthRoutes.metrics),
    Operation("GET", "/metrics/detailed", NODE, HealthRoutes.detailed),
    Operation("GET", "/", OPEN, Pages.show_page),
    Operation("GET", "/static/{file}", OPEN, Pages.show_file),
)
"""Of no version of the API: at the top. Every process has health and metrics, one that serves
clients the console."""

API: Final[Sequence[Operation]] = (
    Operation("GET", "/openapi.json", OPEN, Description.show, Document),
    Operation("GET", "/health", NODE, HealthRoutes.health, Health, status=(200, 503)),
    # --- The console ------------------------------------------------------------------------
    Operation(
        "POST",
        "/console/session",
        SOME,
        SessionRoutesOfConsole.sign_in,
        SignedIn,
        status=(201,),
    ),
    Operation("GET", "/console/session", SOME, SessionRoutesOfConsole.show_sign_in, SignedIn),
    Operation("DELETE", "/console/session", SOME, SessionRoutesOfConsole.sign_out),
    Operation(
        "POST",
        "/console/codes",
        SOME,
        SessionRoutesOfConsole.make_code,
        SignInCode,
        status=(201,),
    ),
    # --- History ----------------------------------------------------------------------------
    Operation(
        "GET",
        "/history",
        TENANT,
        history.HistoryRoutes.show_history,
        history.HistoryShown,
        query=(Parameter("topic", "One topic; its history begins when it is first asked for."),),
    ),
    # --- The process ------------------------------------------------------------------------
    Operation("GET", "/node", NODE, node.NodeRoutes.show_node, node.NodeShown),
    Operation(
        "GET",
        "/settings",
        NODE,
        settings.SettingRoutes.list_settings,
        settings.SettingList,
    ),
    # --- Tenants ----------------------------------------------------------------------------
    Operation("GET", "/tenants", SOME, tenants.KnownTenants.list_tenants, tenants.TenantList),
    Operation(
        "POST",
        "/tenants",
        NODE,
        changes.TenantRoutes.make_tenant,
        changes.TenantShown,
        changes.TenantNew,
        status=(201,),
    ),
    Operation(
        "GET",
        "/tenants/{tenant}",
        SOME,
        changes.TenantRoutes.show_tenant,
        changes.TenantShown,
        query=(
            Parameter(
                "wait",
                "Seconds to wait while it is being removed.",
                Annotated[int, Meta(ge=0, le=changes.WAIT_SECONDS_MAX)],
            ),
        ),
    ),
    Operation(
        "PATCH",
        "/tenants/{tenant}",
        NODE,
        changes.TenantRoutes.change_tenant,
        changes.TenantShown,
        changes.TenantFields,
    ),
    Operation(
        "DELETE",
        "/tenants/{tenant}",
        NODE,
        changes.TenantRoutes.remove_tenant,
        changes.TenantShown,
        status=(202,),
    ),
    # --- Topics and groups ------------------------------------------------------------------
    Operation(
        "GET",
        "/topics",
        TENANT,
        topics.TopicRoutes.list_topics,
        topics.TopicPage,
        query=(
            *PAGE,
            Parameter("search", "Only names that hold this, in upper or lower case."),
            Parameter("type", "Only topics of this type."),
            Parameter("sort", "The column to sort by; `-` before it: the largest first."),
        ),
    ),
    Operation(
        "POST",
        "/topics",
        TENANT,
        topics.TopicRoutes.create_topic,
        shapes.TopicDetails,
        shapes.TopicNew,
        status=(201,),
    ),
    Operation("GET", "/topics/{topic}", TENANT, topics.TopicRoutes.show_topic, shapes.TopicDetails),
    Operation(
        "PATCH",
        "/topics/{topic}",
        TENANT,
        topics.TopicRoutes.change_topic,
        shapes.TopicDetails,
        shapes.TopicFields,
    ),
    Operation(
        "DELETE",
        "/topics/{topic}",
        TENANT,
        topics.TopicRoutes.delete_topic,
        topics.Purged,
        query=(IF_UNUSED, Parameter("if_empty", "Only if no message is ready.", bool)),
    ),
    Operation(
        "POST",
        "/topics/{topic}/resize",
        TENANT,
        topics.TopicRoutes.resize_topic,
        shapes.TopicDetails,
        topics.ResizeRequest,
    ),
    Operation(
        "PUT",
        "/topics/{topic}/size",
        TENANT,
        topics.TopicRoutes.set_size,
        shapes.TopicDetails,
        topics.SizeRequest,
    ),
    Operation("DELETE", "/topics/{topic}/size", TENANT, topics.TopicRoutes.remove_size),
    Operation(
        "PUT",
        "/topics/{topic}/trace",
        TENANT,
        topic_traces.TopicTraceRoutes.set_mode,
        topic_traces.TraceSet,
        topic_traces.TraceRequest,
    ),
    Operation(
        "POST",
        "/topics/{topic}/purge",
        TENANT,
        topics.TopicRoutes.purge_topic,
        topics.Purged,
        topics.PurgeRequest,
    ),
    Operation(
        "GET",
        "/groups",
        TENANT,
        topics.TopicRoutes.list_groups,
        topics.GroupPage,
        query=(AFTER, LIMIT, Parameter("topic", "Only this topic's; all of them on one page.")),
    ),
    Operation(
        "POST",
        "/topics/{topic}/groups",
        TENANT,
        topics.TopicRoutes.create_group,
        shapes.GroupShown,
        shapes.GroupNew,
        status=(201,),
    ),
    Operation(
        "GET",
        "/topics/{topic}/groups/{group}",
        TENANT,
        topics.TopicRoutes.show_group,
        shapes.GroupShown,
    ),
    Operation(
        "PATCH",
        "/topics/{topic}/groups/{group}",
        TENANT,
        topics.TopicRoutes.change_group,
        shapes.GroupShown,
        shapes.GroupFields,
    ),
    Operation(
        "DELETE",
        "/topics/{topic}/groups/{group}",
        TENANT,
        topics.TopicRoutes.delete_group,
    ),
    # --- Messages ---------------------------------------------------------------------------
    Operation(
        "GET",
        "/topics/{topic}/messages",
        TENANT,
        messages.MessageRoutes.peek,
        messages.MessagePage,
        query=(
            Parameter("queue", "One queue; without it all of them.", messages.FromZero),
            Parameter("from_queue", "The first of all queues.", messages.FromZero),
            Parameter("offset", "The first offset, in the first queue.", messages.FromZero),
            Parameter("since_ms", "Stored from then on, since the epoch.", messages.FromZero),
            Parameter("group", "Only from what this group is not done with on."),
            Parameter(
                "limit",
                f"The most messages; {messages.PEEK_DEFAULT} unless told.",
                Annotated[int, Meta(ge=1, le=messages.PEEK_MAX)],
            ),
        ),
    ),
    Operation(
        "POST",
        "/topics/{topic}/messages",
        TENANT,
        messages.MessageRoutes.send,
        messages.MessageSent,
        messages.MessageNew,
        status=(201,),
        is_audited=False,
    ),
    Operation(
        "GET",
        "/topics/{topic}/trace/{message}",
        TENANT,
        tracing.TraceRoutes.trace,
        tracing.TracePage,
        query=(
            Parameter("from_queue", "The first queue.", messages.FromZero),
            Parameter("offset", "The first offset, in the first queue.", messages.FromZero),
            Parameter("since_ms", "Stored from then on, since the epoch.", messages.FromZero),
            Parameter(
                "limit",
                "The most messages that are looked at.",
                Annotated[int, Meta(ge=1, le=tracing.LOOKED_MAX)],
            ),
        ),
    ),
    Operation(
        "GET",
        "/topics/{topic}/history/{message}",
        TENANT,
        topic_traces.TopicTraceRoutes.history,
        topic_traces.HistoryPage,
        query=(
            Parameter("offset", "Where in the trace stream to go on.", messages.FromZero),
            Parameter("since_ms", "Noted from then on, since the epoch.", messages.FromZero),
            Parameter("queue", "Where the message lies, if that is known.", messages.FromZero),
            Parameter("at", "Its offset there.", messages.FromZero),
        ),
    ),
    Operation(
        "POST",
        "/topics/{topic}/groups/{group}/receive",
        TENANT,
        consuming.ConsumingRoutes.receive,
        consuming.MessagesLeased,
        consuming.ReceiveRequest,
        is_audited=False,
    ),
    Operation(
        "POST",
        "/topics/{topic}/groups/{group}/settle",
        TENANT,
        consuming.ConsumingRoutes.settle,
        consuming.Settled,
        consuming.SettleRequest,
        is_audited=False,
    ),
    Operation(
        "POST",
        "/topics/{topic}/groups/{group}/seek",
        TENANT,
        consuming.ConsumingRoutes.seek,
        consuming.GroupSought,
        consuming.SeekRequest,
    ),
    Operation("GET", "/topics/{topic}/moves", TENANT, moves.MoveRoutes.list_moves, moves.MoveList),
    Operation(
        "POST",
        "/topics/{topic}/moves",
        TENANT,
        moves.MoveRoutes.start_move,
        moves.MoveStarted,
        moves.MoveNew,
        status=(201,),
    ),
    Operation(
        "DELETE",
        "/topics/{topic}/moves/{task}",
        TENANT,
        moves.MoveRoutes.cancel_move,
        moves.MoveCancelled,
    ),
    Operation(
        "GET",
        "/dead-letters",
        TENANT,
        moves.MoveRoutes.list_dead_letters,
        moves.DeadLetterPage,
        query=(AFTER, LIMIT, Parameter("topic", "Only of this topic, or those that wait in it.")),
    ),
    # --- Routers and routes -----------------------------------------------------------------
    Operation(
        "GET",
        "/routers",
        TENANT,
        routers.RouterRoutes.list_routers,
        routers.RouterPage,
        query=PAGE,
    ),
    Operation(
        "POST",
        "/routers",
        TENANT,
        routers.RouterRoutes.create_router,
        routers.RouterShown,
        routers.RouterNew,
        status=(201,),
    ),
    Operation(
        "GET", "/routers/{router}", TENANT, routers.RouterRoutes.show_router, routers.RouterShown
    ),
    Operation(
        "PATCH",
        "/routers/{router}",
        TENANT,
        routers.RouterRoutes.change_router,
        routers.RouterShown,
        routers.RouterFields,
    ),
    Operation(
        "DELETE",
        "/routers/{router}",
        TENANT,
        routers.RouterRoutes.delete_router,
        query=(IF_UNUSED,),
    ),
    Operation(
        "GET",
        "/routers/{router}/routes",
        TENANT,
        routers.RouterRoutes.list_routes,
        routers.RouteList,
    ),
    Operation(
        "POST",
        "/routers/{router}/routes",
        TENANT,
        routers.RouterRoutes.create_route,
        routers.RouteShown,
        routers.RouteNew,
        status=(201,),
    ),
    Operation(
        "GET",
        "/routers/{router}/routes/{route}",
        TENANT,
        routers.RouterRoutes.show_route,
        routers.RouteShown,
    ),
    Operation(
        "DELETE", "/routers/{router}/routes/{route}", TENANT, routers.RouterRoutes.delete_route
    ),
    # --- Sessions ---------------------------------------------------------------------------
    Operation(
        "GET",
        "/sessions",
        TENANT,
        sessions.SessionRoutes.list_sessions,
        sessions.SessionPage,
        query=PAGE,
    ),
    Operation(
        "GET",
        "/sessions/{client}",
        TENANT,
        sessions.SessionRoutes.show_session,
        sessions.SessionDetails,
    ),
    Operation("DELETE", "/sessions/{client}", TENANT, sessions.SessionRoutes.delete_session),
    # --- Connections ------------------------------------------------------------------------
    Operation(
        "GET",
        "/connections",
        TENANT,
        connections.ConnectionRoutes.list_connections,
        connections.ConnectionPage,
        query=(
            *(Parameter(name, "Only with exactly this.") for name in connections.FILTERS),
            Parameter("sort", "The column to sort by; `-` before it: the largest first."),
            Parameter("details", "With the channels and consumers of each.", bool),
            Parameter("rates", "Look twice, a second apart, for bytes a second.", bool),
            AFTER,
            LIMIT,
        ),
    ),
    Operation(
        "DELETE",
        "/connections",
        TENANT,
        connections.ConnectionRoutes.close_user,
        query=(USER, REASON),
    ),
    Operation(
        "GET",
        "/connections/totals",
        TENANT,
        connections.ConnectionRoutes.show_totals,
        connections.ConnectionTotals,
        query=tuple(Parameter(name, "Only with exactly this.") for name in connections.FILTERS),
    ),
    Operation(
        "GET",
        "/connections/{connection}",
        TENANT,
        connections.ConnectionRoutes.show_connection,
        local_connections.ConnectionDetails,
    ),
    Operation(
        "DELETE",
        "/connections/{connection}",
        TENANT,
        connections.ConnectionRoutes.close_connection,
        query=(REASON,),
    ),
    # --- Users, access keys and policies ----------------------------------------------------
    Operation(
        "GET", "/users", TENANT, users.PrincipalRoutes.list_users, users.UserPage, query=PAGE
    ),
    Operation(
        "POST",
        "/users",
        TENANT,
        users.PrincipalRoutes.create_user,
        users.UserShown,
        users.UserNew,
        status=(201,),
    ),
    Operation("GET", "/users/{user}", TENANT, users.PrincipalRoutes.show_user, users.UserShown),
    Operation(
        "PATCH",
        "/users/{user}",
        TENANT,
        users.PrincipalRoutes.change_user,
        users.UserShown,
        users.UserFields,
    ),
    Operation("DELETE", "/users/{user}", TENANT, users.PrincipalRoutes.delete_user),
    Operation(
        "GET",
        "/keys",
        TENANT,
        users.PrincipalRoutes.list_keys,
        users.KeyList,
        query=(Parameter("user", "Only this user's."),),
    ),
    Operation(
        "POST",
        "/keys",
        TENANT,
        users.PrincipalRoutes.create_key,
        users.KeyShown,
        users.KeyNew,
        status=(201,),
    ),
    Operation("GET", "/keys/{key}", TENANT, users.PrincipalRoutes.show_key, users.KeyShown),
    Operation(
        "PATCH",
        "/keys/{key}",
        TENANT,
        users.PrincipalRoutes.change_key,
        users.KeyShown,
        users.KeyFields,
    ),
    Operation("DELETE", "/keys/{key}", TENANT, users.PrincipalRoutes.delete_key),
    Operation("GET", "/policies", TENANT, users.PrincipalRoutes.list_policies, users.PolicyList),
    Operation(
        "GET",
        "/policies/{policy}",
        TENANT,
        users.PrincipalRoutes.show_policy,
        users.PolicyShown,
    ),
    Operation(
        "PUT",
        "/policies/{policy}",
        TENANT,
        users.PrincipalRoutes.put_policy,
        users.PolicyShown,
        users.PolicyRules,
        status=(200, 201),
    ),
    Operation("DELETE", "/policies/{policy}", TENANT, users.PrincipalRoutes.delete_policy),
    Operation(
        "GET",
        "/access",
        TENANT,
        access.AccessRoutes.explain,
        access.Verdict,
        query=(
            Parameter("user", "Who."),
            Parameter("action", "`publish`, `consume`, `configure`, `inspect` or `administer`."),
            Parameter("kind", "`topic`, `router`, `tree`, `group`, `tenant`, `node` or `client`."),
            Parameter("name", "Its name; of `tree` a topic or a filter."),
            Parameter("client_id", "What `${clientid}` stands for."),
        ),
    ),
    # --- Limits -----------------------------------------------------------------------------
    Operation("GET", "/limits", TENANT, limits.LimitRoutes.list_limits, limits.LimitList),
    Operation(
        "PATCH",
        "/limits/{scope}/{name}",
        NODE,
        limits.LimitRoutes.change_limit,
        limits.LimitShown,
        limits.LimitChanges,
        query=(WHOSE,),
    ),
    Operation(
        "DELETE",
        "/limits/{scope}/{name}",
        NODE,
        limits.LimitRoutes.delete_limit,
        query=(WHOSE,),
    ),
    # --- Definitions ------------------------------------------------------------------------
    Operation(
        "GET",
        "/definitions",
        TENANT,
        definitions.DefinitionRoutes.export_definitions,
        Definitions,
        query=(
            ONLY,
            Parameter("name", "Only what is called so, of each kind."),
            Parameter("secrets", "Without users and keys, if false.", bool),
        ),
    ),
    Operation(
        "POST",
        "/definitions",
        TENANT,
        definitions.DefinitionRoutes.apply_definitions,
        definitions.Applied,
        Definitions,
        query=(ONLY, Parameter("dry_run", "Change nothing, and say what would be.", bool)),
        status=(200, 207),
    ),
    # --- Events -----------------------------------------------------------------------------
    Operation(
        "GET",
        "/events",
        NODE,
        events.EventRoutes.list_events,
        events.EventPage,
        query=(
            Parameter("after", "The number after which they begin.", Annotated[int, Meta(ge=0)]),
            LIMIT,
            Parameter(
                "wait",
                "Seconds to wait for the first.",
                Annotated[int, Meta(ge=0, le=events.WAIT_S_MAX)],
            ),
        ),
    ),
    Operation(
        "GET",
        "/audit",
        NODE,
        audit.AuditRoutes.list_entries,
        audit.AuditPage,
        query=(
            Parameter("offset", "Where they begin.", Annotated[int, Meta(ge=0)]),
            Parameter("since_ms", "Noted from this time on (ms since the epoch).", int),
            LIMIT,
        ),
    ),
    # --- Metering ---------------------------------------------------------------------------
    Operation("GET", "/metering", NODE, metering.MeteringRoutes.show, CollectorStatistics),
    Operation(
        "POST",
        "/metering/export",
        NODE,
        metering.MeteringRoutes.export,
        Exported,
        query=(Parameter("new_archive", "The one that was there is lost, or moved away.", bool),),
    ),
    Operation(
        "POST",
        "/metering/bill",
        NODE,
        metering.MeteringRoutes.begin_bill,
        MonthBillShown,
        metering.BillAsked,
        status=(202,),
    ),
    Operation("GET", "/metering/bill", TENANT, metering.MeteringRoutes.show_bill, MonthBillShown),
    # --- Backups ----------------------------------------------------------------------------
    Operation(
        "POST",
        "/backups",
        NODE,
        backups.BackupRoutes.pin,
        backups.PinShown,
        backups.PinMake,
        status=(201,),
    ),
    Operation("GET", "/backups/{number}", NODE, backups.BackupRoutes.touch, backups.PinHeld),
    Operation("DELETE", "/backups/{number}", NODE, backups.BackupRoutes.drop),
    # --- Cluster ----------------------------------------------------------------------------
    Operation("GET", "/cluster", NODE, cluster.ClusterRoutes.show, ClusterStatus),
    Operation(
        "POST",
        "/cluster/join",
        NODE,
        cluster.ClusterRoutes.join,
        cluster.UnderWay,
        cluster.JoinAsked,
        status=(202,),
    ),
    Operation(
        "POST",
        "/cluster/cuts",
        NODE,
        cluster.ClusterRoutes.cut,
        cluster.CutMade,
        cluster.CutAsked,
        status=(201,),
    ),
    Operation(
        "DELETE",
        "/cluster/stores/{number}",
        NODE,
        cluster.ClusterRoutes.remove,
        cluster.UnderWay,
        status=(202,),
    ),
    Operation(
        "POST",
        "/cluster/groups/{group}/transfer",
        NODE,
        cluster.ClusterRoutes.transfer,
        cluster.Moved,
        cluster.TransferAsked,
    ),
    Operation(
        "POST",
        "/cluster/groups/{group}/move",
        NODE,
        cluster.ClusterRoutes.move,
        cluster.MoveUnderWay,
        cluster.MoveAsked,
        status=(202,),
    ),
    Operation(
        "DELETE",
        "/cluster/groups/{group}/move",
        NODE,
        cluster.ClusterRoutes.cancel_move,
        cluster.MoveUnderWay,
        status=(202,),
    ),
    Operation(
        "PUT",
        "/cluster/replicas",
        NODE,
        cluster.ClusterRoutes.set_replicas,
        cluster.ReplicasSet,
        cluster.ReplicasAsked,
    ),
    Operation(
        "POST",
        "/cluster/groups",
        NODE,
        cluster.ClusterRoutes.add_groups,
        cluster.GroupsAdded,
        cluster.GroupsAsked,
        status=(202,),
    ),
    Operation(
        "POST", "/cluster/rebalance", NODE, cluster.ClusterRoutes.rebalance, cluster.MovedGroups
    ),
    Operation("GET", "/cluster/features", NODE, cluster.FeatureRoutes.show, FeatureList),
    Operation(
        "POST",
        "/cluster/features",
        NODE,
        cluster.FeatureRoutes.enable,
        FeatureList,
        cluster.FeaturesAsked,
    ),
    Operation("GET", "/cluster/gateways", NODE, cluster.ClusterRoutes.gateways, cluster.Gateways),
    Operation(
        "POST",
        "/cluster/gateways/{name}/drain",
        NODE,
        cluster.ClusterRoutes.drain,
        takes=cluster.DrainAsked,
    ),
)
"""Below /api/v1. In a class of resources an operation is known by its handler."""
