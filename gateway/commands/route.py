"""`weir router` and `weir route`: routing points, and the ways from them to topics.

A route is wholly its identity: there is nothing to set on one. Remove it and create another.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from gateway.commands.api import DataOption, TenantOption, UrlOption, connect, path_of
from gateway.commands.output import CommandError, ExitCode, Format, FormatOption, Table, put
from gateway.commands.values import NONE, YesOption, confirm, pairs, put_one, text

routers = typer.Typer(help="Routers: what AMQP calls exchanges.", no_args_is_help=True)
routes = typer.Typer(help="Routes from routers: what AMQP calls bindings.", no_args_is_help=True)


class MatchChoice(StrEnum):
    """How the routes of a router are chosen."""

    EXACT = "exact"
    ALL = "all"
    PATTERN = "pattern"
    ATTRIBUTES = "attributes"


RouterName = Annotated[str, typer.Argument(metavar="ROUTER", help="Name of the router.")]
RouteId = Annotated[str, typer.Argument(metavar="ID", help="Id that `weir route ls` shows.")]
Alternate = Annotated[
    str | None,
    typer.Option("--alternate", help="Router for what no route here takes, or none."),
]
Internal = Annotated[
    bool | None,
    typer.Option("--internal/--public", help="Whether only routes may lead to it."),
]


@routers.command("ls")
def list_routers(
    prefix: Annotated[str, typer.Option("--prefix", help="Only names that begin so.")] = "",
    url: UrlOption = None,
    data: DataOption = None,
    tenant: TenantOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List routers by name."""
    rows, _ = connect(url, data, tenant).pages("routers", prefix=prefix)
    columns = ("name", "match", "durable", "routes")
    shown = [tuple(text(row[column]) for column in columns) for row in rows]
    put({"routers": rows}, Table(columns, shown), output)


@routers.command("info")
def show_router(
    router: RouterName,
    url: UrlOption = None,
    data: DataOption = None,
    tenant: TenantOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show one router."""
    found = connect(url, data, tenant).get(path_of("routers", router))
    put_one(found, router, found.items(), output)


@routers.command("create")
def create_router(
    router: RouterName,
    match: Annotated[
        MatchChoice, typer.Option("--match", help="How its routes are chosen.")
    ] = MatchChoice.EXACT,
    alternate: Alternate = None,
    internal: Internal = None,
    url: UrlOption = None,
    data: DataOption = None,
    tenant: TenantOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Create a router."""
    body = {"name": router, "match": match.value, **_fields(alternate, internal)}
    made = connect(url, data, tenant).post("/routers", body)
    put_one(made, router, made.items(), output)


@routers.command("set")
def set_router(
    router: RouterName,
    alternate: Alternate = None,
    internal: Internal = None,
    url: UrlOption = None,
    data: DataOption = None,
    tenant: TenantOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Change settings; what is not named stays."""
    fields = _fields(alternate, internal)
    changed = connect(url, data, tenant).patch(path_of("routers", router), fields)
    put_one(changed, router, changed.items(), output)


@routers.command("rm")
def remove_router(
    router: RouterName,
    yes: YesOption = False,
    if_unused: Annotated[
        bool, typer.Option("--if-unused", help="Only if it has no routes.")
    ] = False,
    url: UrlOption = None,
    data: DataOption = None,
    tenant: TenantOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Delete a router with the routes from and to it."""
    api = connect(url, data, tenant)
    confirm(f"Deleting router {router} and its routes", router, yes=yes)
    api.delete(path_of("routers", router), if_unused=if_unused)
    put({"name": router}, Table(("deleted",), [(router,)]), output)


@routes.command("ls")
def list_routes(
    router: RouterName,
    url: UrlOption = None,
    data: DataOption = None,
    tenant: TenantOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List the routes from a router, in the order in which they came."""
    found = connect(url, data, tenant).get(path_of("routers", router) + "/routes")
    shown = [(row["id"], text(row["key"]), _target(row)) for row in found["routes"]]
    put(found, Table(("id", "key", "to"), shown), output)


@routes.command("info")
def show_route(
    router: RouterName,
    route: RouteId,
    url: UrlOption = None,
    data: DataOption = None,
    tenant: TenantOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show one route."""
    _show(connect(url, data, tenant).get(path_of("routers", router, "routes", route)), output)


@routes.command("create")
def create_route(
    router: RouterName,
    topic: Annotated[str | None, typer.Option("--topic", help="Topic it leads to.")] = None,
    to_router: Annotated[str | None, typer.Option("--router", help="Router it leads to.")] = None,
    key: Annotated[str, typer.Option("--key", help="Key, or pattern with / + #.")] = "",
    attributes: Annotated[
        list[str] | None,
        typer.Option("--attribute", metavar="NAME=VALUE", help="Asked for; may be repeated."),
    ] = None,
    any_of: Annotated[
        bool, typer.Option("--any", help="One attribute is enough, instead of all.")
    ] = False,
    url: UrlOption = None,
    data: DataOption = None,
    tenant: TenantOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Add a route. Adding it again changes nothing."""
    if (topic is None) == (to_router is None):
        raise CommandError("a route needs --topic or --router, one of them", ExitCode.USAGE)
    body = {
        "key": key,
        "topic": topic,
        "router": to_router,
        "attributes": pairs(attributes, "--attribute"),
        "combine": "any_of" if any_of else "all_of",
    }
    _show(connect(url, data, tenant).post(path_of("routers", router) + "/routes", body), output)


@routes.command("rm")
def remove_route(
    router: RouterName,
    route: RouteId,
    yes: YesOption = False,
    url: UrlOption = None,
    data: DataOption = None,
    tenant: TenantOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Remove a route; the topic and its messages stay."""
    api = connect(url, data, tenant)
    confirm(f"Removing route {route} from {router}", route, yes=yes)
    api.delete(path_of("routers", router, "routes", route))
    put({"id": route, "source": router}, Table(("removed", "router"), [(route, router)]), output)


def _fields(alternate: str | None, internal: bool | None) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if alternate is not None:
        fields["alternate"] = None if alternate == NONE else alternate
    if internal is not None:
        fields["internal"] = internal
    return fields


def _target(route: dict[str, Any]) -> str:
    if route["topic"] is not None:
        return f"topic {route['topic']}"
    return f"router {route['router']}"


def _show(route: dict[str, Any], output: Format) -> None:
    rows: list[tuple[str, object]] = [
        ("id", route["id"]),
        ("from", route["source"]),
        ("key", route["key"]),
        ("to", _target(route)),
        ("attributes", [f"{name}={value}" for name, value in route["attributes"].items()]),
        ("combine", route["combine"]),
    ]
    put_one(route, route["id"], rows, output)
