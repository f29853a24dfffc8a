"""Which handler a path of the management API has. Segments that begin with `:` are names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from adapters.amqp.management import (
    documents,
    exchanges,
    messages,
    open_connections,
    overview,
    people,
    queues,
    tenancy,
)
from adapters.amqp.management.requests import Refused, bad_request, not_found

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from adapters.amqp.management.requests import Answer, Asked

    Handler = Callable[[Asked], Awaitable[Answer]]

_BOUND: Final = "/bindings/:vhost/e/:source/:kind/:target"

ROUTES: Final[Mapping[tuple[str, str], Handler]] = {
    ("GET", "/whoami"): overview.whoami,
    ("GET", "/overview"): overview.overview,
    ("GET", "/cluster-name"): overview.cluster_name,
    ("GET", "/nodes"): overview.list_nodes,
    ("GET", "/nodes/:name"): overview.show_node,
    ("GET", "/extensions"): overview.nothing,
    ("GET", "/policies"): overview.nothing,
    ("GET", "/policies/:vhost"): overview.nothing,
    ("GET", "/parameters"): overview.nothing,
    ("GET", "/vhosts"): overview.list_virtual_hosts,
    ("GET", "/vhosts/:vhost"): overview.show_virtual_host,
    ("GET", "/aliveness-test/:vhost"): overview.aliveness,
    ("GET", "/healthchecks/node"): overview.alarms,
    ("GET", "/health/checks/alarms"): overview.alarms,
    ("GET", "/health/checks/local-alarms"): overview.alarms,
    ("GET", "/health/checks/virtual-hosts"): overview.well,
    ("GET", "/health/checks/port-listener/:port"): overview.port_listener,
    ("GET", "/health/checks/protocol-listener/:protocol"): overview.protocol_listener,
    ("GET", "/queues"): queues.list_queues,
    ("GET", "/queues/:vhost"): queues.list_queues,
    ("GET", "/queues/:vhost/:name"): queues.show_queue,
    ("PUT", "/queues/:vhost/:name"): queues.declare_queue,
    ("DELETE", "/queues/:vhost/:name"): queues.delete_queue,
    ("DELETE", "/queues/:vhost/:name/contents"): queues.purge_queue,
    ("GET", "/queues/:vhost/:name/bindings"): exchanges.list_of_queue,
    ("POST", "/queues/:vhost/:name/get"): messages.get,
    ("GET", "/exchanges"): exchanges.list_exchanges,
    ("GET", "/exchanges/:vhost"): exchanges.list_exchanges,
    ("GET", "/exchanges/:vhost/:name"): exchanges.show_exchange,
    ("PUT", "/exchanges/:vhost/:name"): exchanges.declare_exchange,
    ("DELETE", "/exchanges/:vhost/:name"): exchanges.delete_exchange,
    ("POST", "/exchanges/:vhost/:name/publish"): messages.publish,
    ("GET", "/exchanges/:vhost/:name/bindings/source"): exchanges.list_of_source,
    ("GET", "/exchanges/:vhost/:name/bindings/destination"): exchanges.list_of_destination,
    ("GET", "/bindings"): exchanges.list_bindings,
    ("GET", "/bindings/:vhost"): exchanges.list_bindings,
    ("GET", _BOUND): exchanges.list_between,
    ("POST", _BOUND): exchanges.bind,
    ("GET", f"{_BOUND}/:key"): exchanges.show_binding,
    ("DELETE", f"{_BOUND}/:key"): exchanges.unbind,
    ("GET", "/connections"): open_connections.list_connections,
    ("GET", "/vhosts/:vhost/connections"): open_connections.list_connections,
    ("GET", "/connections/:name"): open_connections.show_connection,
    ("DELETE", "/connections/:name"): open_connections.close_connection,
    ("GET", "/connections/:name/channels"): open_connections.list_channels,
    ("GET", "/channels"): open_connections.list_channels,
    ("GET", "/vhosts/:vhost/channels"): open_connections.list_channels,
    ("GET", "/channels/:channel"): open_connections.show_channel,
    ("GET", "/consumers"): open_connections.list_consumers,
    ("GET", "/consumers/:vhost"): open_connections.list_consumers,
    ("PUT", "/vhosts/:vhost"): tenancy.put_virtual_host,
    ("DELETE", "/vhosts/:vhost"): tenancy.delete_virtual_host,
    ("GET", "/users"): people.list_users,
    ("GET", "/users/without-permissions"): people.list_without_permissions,
    ("POST", "/users/bulk-delete"): people.delete_users,
    ("GET", "/users/:user"): people.show_user,
    ("PUT", "/users/:user"): people.put_user,
    ("DELETE", "/users/:user"): people.delete_user,
    ("GET", "/users/:user/permissions"): people.list_permissions,
    ("GET", "/users/:user/topic-permissions"): people.list_topic_permissions,
    ("GET", "/permissions"): people.list_permissions,
    ("GET", "/vhosts/:vhost/permissions"): people.list_permissions,
    ("GET", "/permissions/:vhost/:user"): people.show_permission,
    ("PUT", "/permissions/:vhost/:user"): people.put_permission,
    ("DELETE", "/permissions/:vhost/:user"): people.delete_permission,
    ("GET", "/topic-permissions"): people.list_topic_permissions,
    ("GET", "/vhosts/:vhost/topic-permissions"): people.list_topic_permissions,
    ("GET", "/topic-permissions/:vhost/:user"): people.show_topic_permissions,
    ("PUT", "/topic-permissions/:vhost/:user"): people.put_topic_permission,
    ("DELETE", "/topic-permissions/:vhost/:user"): people.delete_topic_permissions,
    ("DELETE", "/topic-permissions/:vhost/:user/:exchange"): people.delete_topic_permissions,
    ("GET", "/vhost-limits"): tenancy.list_host_limits,
    ("GET", "/vhost-limits/:vhost"): tenancy.list_host_limits,
    ("PUT", "/vhost-limits/:vhost/:limit"): tenancy.put_host_limit,
    ("DELETE", "/vhost-limits/:vhost/:limit"): tenancy.delete_host_limit,
    ("GET", "/user-limits"): tenancy.list_user_limits,
    ("GET", "/user-limits/:user"): tenancy.list_user_limits,
    ("PUT", "/user-limits/:user/:limit"): tenancy.put_user_limit,
    ("DELETE", "/user-limits/:user/:limit"): tenancy.delete_user_limit,
    ("GET", "/definitions"): documents.show_definitions,
    ("POST", "/definitions"): documents.apply_definitions,
    ("GET", "/definitions/:vhost"): documents.show_definitions,
    ("POST", "/definitions/:vhost"): documents.apply_definitions,
}

UNSERVED: Final = {
    "policies": "a queue has its settings itself: give them as its arguments, change them with "
    "`weir topic set` and `weir group set`, or POST definitions, whose policies become settings of "
    "the queues in it",
    "operator-policies": "a queue has settings of its own here",
    "parameters": "there are no plugins that have parameters",
    "global-parameters": "there are no plugins that have parameters",
    "vhosts": "a virtual host is a tenant: `weir tenant`, or /api/v1/tenants",
    "feature-flags": "`weir cluster features`",
    "actions": "a queue's replicas and leader are the cluster's matter: `weir cluster`",
    "rebalance": "`weir cluster rebalance`",
    "health": "`weir health`, or /api/v1/health",
}
"""What RabbitMQ has and is not served, by a word of its path: what to use instead."""

_SPLIT: Final = tuple(
    (method, template.split("/")[1:], handler) for (method, template), handler in ROUTES.items()
)


def find(method: str, path: str) -> tuple[Handler, dict[str, str]]:
    """The handler of a path below /api as it was sent, percent-encoded, and the names in it. Raises
    Refused 400, 404, 405, 501.
    """
    given = path.rstrip("/").split("/")[1:]
    wanted = "GET" if method == "HEAD" else method
    is_known = False
    for each, template, handler in _SPLIT:
        if len(template) != len(given) or not all(
            part[0] == ":" or part == here for part, here in zip(template, given, strict=True)
        ):
            continue
        is_known = True
        if each == wanted:
            return handler, _names(template, given)
    # What stands behind a path that is known is a name, whatever it says.
    for word in ("" if is_known or not given else given[-1], given[0] if given else ""):
        if word in UNSERVED:
            reason = f"{method} is not served here: {UNSERVED[word]}"
            # rabbitmqadmin shows the reason of a 400 to whoever types, and a traceback for others.
            status = 501 if wanted == "GET" else 400
            raise Refused(status, "not_implemented", reason)
    if is_known:
        raise Refused(405, "method_not_allowed", f"{method} is not for this path")
    raise not_found()


def _names(template: list[str], given: list[str]) -> dict[str, str]:
    names = {}
    for part, here in zip(template, given, strict=True):
        if part[0] == ":":
            try:
                names[part[1:]] = unquote(here, errors="strict")
            except UnicodeDecodeError:
                raise bad_request(f"the {part[1:]} is not UTF-8") from None
    if names.get("kind", "q") not in {"q", "e"}:
        raise not_found()
    return names
