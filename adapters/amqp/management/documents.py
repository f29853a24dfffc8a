"""All that is defined, as RabbitMQ's definitions.json: written, and applied as `weir definitions
apply` does it.

What is written is what RabbitMQ would read: durable queues and exchanges with their bindings, users
with their hashes, permissions, limits. What has no words there is not in it (`weir definitions
export` has all): streams, routes of other protocols, users whose rights are no three expressions.
The last are named in it (`left_out`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from adapters.amqp.management import exchanges, people, queues, tenancy
from adapters.amqp.management.administering import administered, ask, tenant_administered
from adapters.amqp.management.requests import Answer, Asked, bad_request
from adapters.amqp.names import PREDECLARED

if TYPE_CHECKING:
    from collections.abc import Sequence

LEFT_OUT: Final = "left_out"
"""Who is not in the document, and why: for people. Who reads one passes over it."""

_QUEUE: Final = ("name", "vhost", "durable", "auto_delete", "arguments")
_EXCHANGE: Final = ("name", "vhost", "type", "durable", "auto_delete", "internal", "arguments")
_BINDING: Final = (
    *("source", "vhost", "destination", "destination_type"),
    *("routing_key", "arguments"),
)
_USER: Final = ("name", "password_hash", "hashing_algorithm", "tags", "limits")

_OF_A_HOST: Final = ("queues", "exchanges", "bindings", "permissions", "topic_permissions")
"""What names its virtual host, but for in a document of one."""


async def show_definitions(asked: Asked) -> Answer:
    """Of all that the caller administers, or of one virtual host."""
    named = asked.names.get("vhost")
    hosts = administered(asked) if named is None else [(tenant_administered(asked, named), named)]
    found: dict[str, list[dict[str, Any]]] = {each: [] for each in _OF_A_HOST}
    # Others would lose, where the document is applied, what cannot be said in it.
    known = await people.everybody(asked)
    everybody = [each for each in known if each.is_told]
    for tenant, _ in hosts:
        caller = asked.caller(tenant)
        kept = [each for each in queues.declared_in(asked, caller) if _is_kept(each)]
        routers = [
            each
            for each in await exchanges.declared_in(asked, caller)
            if each["name"] not in PREDECLARED and _is_kept(each)
        ]
        ends = {("queue", each["name"]) for each in kept}
        ends |= {("exchange", each["name"]) for each in routers}
        ends |= {("exchange", each) for each in PREDECLARED}
        found["queues"] += [_cut(each, _QUEUE) for each in kept]
        found["exchanges"] += [_cut(each, _EXCHANGE) for each in routers]
        found["bindings"] += [
            _cut(each, _BINDING)
            for each in await exchanges.bindings_in(asked, caller)
            if {("exchange", each["source"]), (each["destination_type"], each["destination"])}
            <= ends
        ]
    found["permissions"] = list(people.permission_rows(everybody))
    found["topic_permissions"] = list(people.topic_rows(everybody))
    settings = asked.broker.settings
    about: dict[str, Any] = {
        "rabbit_version": settings.version,
        "rabbitmq_version": settings.version,
        "product_name": settings.product,
        "product_version": asked.broker.version,
        "policies": [],
        "parameters": [],
    }
    if named is not None:
        del found["permissions"], found["topic_permissions"]
        rows = {kind: [_without_host(each) for each in found[kind]] for kind in found}
        return Answer(200, {**about, **rows})
    limits = await tenancy.limits_by_user(asked)
    users = [
        {**_cut(people.user_row(each), _USER), "limits": limits.get(each.login, {})}
        for each in everybody
    ]
    about["parameters"] = [
        {"component": "vhost-limits", "name": "limits", **row}
        for row in await tenancy.host_limits(asked)
    ]
    document = {
        **about,
        "users": users,
        "vhosts": [{"name": host} for _, host in hosts],
        "global_parameters": [],
        LEFT_OUT: [
            {"kind": "user", "name": each.login, "reason": each.untold()}
            for each in known
            if not each.is_told
        ],
        **found,
    }
    return Answer(200, document)


def _is_kept(row: dict[str, Any]) -> bool:
    return bool(row["durable"]) and not row["auto_delete"] and not row.get("exclusive")


def _cut(row: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: row[name] for name in names}


def _without_host(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "vhost"}


async def apply_definitions(asked: Asked) -> Answer:
    """Add and change what a document says; what it does not name stays. Nothing is done if one
    thing of it cannot be had here; what has no equal is told in the answer, by name.
    """
    document = asked.read()
    named = asked.names.get("vhost")
    query = {}
    if named is not None:
        query["tenant"] = tenant_administered(asked, named)
        for kind in (*_OF_A_HOST, "policies", "parameters"):
            for row in _rows(document, kind):
                row["vhost"] = named
        for kind in ("users", "vhosts", "permissions", "topic_permissions"):
            document.pop(kind, None)
    elif not asked.is_administrator:
        query["tenant"] = administered(asked)[0][0]
    document.setdefault("rabbit_version", asked.broker.settings.version)
    while True:
        _, done = await ask(asked, "POST", "/definitions", document, query)
        if not done["remaining"]:
            return Answer(200, {"unlike": done["unlike"]})


def _rows(document: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    rows = document.get(kind) or []
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise bad_request(f"{kind} is no list of objects")
    return rows
