"""`weir router` and `weir route`: routing points, and the ways from them to topics.

A route is wholly its identity: there is nothing to set on one. Remove it and create another.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from gateway.commands.common.api import path_of
from gateway.commands.common.options import (
    FormatOption,
    PrefixOption,
    TenantOptions,
    YesOption,
    with_groups,
)
from gateway.commands.common.output import CommandError, ExitCode, Format, Table, put
from gateway.commands.common.values import NONE, confirm, pairs, put_one, text

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


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """What can be set on a router, as options; None: not named."""

    alternate: Alternate = None
    internal: Internal = None

    def fields(self) -> dict[str, Any]:
        """The settings that were given, as the API names them."""
        fields: dict[str, Any] = {}
        if self.alternate is not None:
            fields["alternate"] = None if self.alternate == NONE else self.alternate
        if self.internal is not None:
            fields["internal"] = self.internal
        return fields


@routers.command("ls")
@with_groups
def list_routers(
    prefix: PrefixOption = "", *, server: TenantOptions, output: FormatOption = Format.TABLE
) -> None:
    """List routers by name."""
    rows, _ = server.connect().pages("routers", prefix=prefix)
    columns = ("name", "match", "durable", "routes")
    shown = [tuple(text(row[column]) for column in columns) for row in rows]
    put({"routers": rows}, Table(columns, shown), output)


@routers.command("info")
@with_groups
def show_router(
    router: RouterName, *, server: TenantOptions, output: FormatOption = Format.TABLE
) -> None:
    """Show one router."""
    found = server.connect().get(path_of("routers", router))
    put_one(found, router, found.items(), output)


@routers.command("create")
@with_groups
def create_router(
    router: RouterName,
    match: Annotated[
        MatchChoice, typer.Option("--match", help="How its routes are chosen.")
    ] = MatchChoice.EXACT,
    *,
    settings: RouterSettings,
    server: TenantOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Create a router."""
    body = {"name": router, "match": match.value, **settings.fields()}
    made = server.connect().post("/routers", body)
    put_one(made, router, made.items(), output)


@routers.command("set")
@with_groups
def set_router(
    router: RouterName,
    *,
    settings: RouterSettings,
    server: TenantOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Change settings; what is not named stays."""
    fields = settings.fields()
    changed = server.connect().patch(path_of("routers", router), fields)
    put_one(changed, router, changed.items(), output)


@routers.command("rm")
@with_groups
def remove_router(
    router: RouterName,
    yes: YesOption = False,
    if_unused: Annotated[
        bool, typer.Option("--if-unused", help="Only if it has no routes.")
    ] = False,
    *,
    server: TenantOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Delete a router with the routes from and to it."""
    api = server.connect()
    confirm(f"Deleting router {router} and its routes", router, yes=yes)
    api.delete(path_of("routers", router), if_unused=if_unused)
    put({"name": router}, Table(("deleted",), [(router,)]), output)


@routes.command("ls")
@with_groups
def list_routes(
    router: RouterName, *, server: TenantOptions, output: FormatOption = Format.TABLE
) -> None:
    """List the routes from a router, in the order in which they came."""
    found = server.connect().get(path_of("routers", router) + "/routes")
    shown = [(row["id"], text(row["key"]), _target(row)) for row in found["routes"]]
    put(found, Table(("id", "key", "to"), shown), output)


@routes.command("info")
@with_groups
def show_route(
    router: RouterName,
    route: RouteId,
    *,
    server: TenantOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show one route."""
    _show(server.connect().get(path_of("routers", router, "routes", route)), output)


@routes.command("create")
@with_groups
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
    *,
    server: TenantOptions,
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
    _show(server.connect().post(path_of("routers", router) + "/routes", body), output)


@routes.command("rm")
@with_groups
def remove_route(
    router: RouterName,
    route: RouteId,
    yes: YesOption = False,
    *,
    server: TenantOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Remove a route; the topic and its messages stay."""
    api = server.connect()
    confirm(f"Removing route {route} from {router}", route, yes=yes)
    api.delete(path_of("routers", router, "routes", route))
    put({"id": route, "source": router}, Table(("removed", "router"), [(route, router)]), output)


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
