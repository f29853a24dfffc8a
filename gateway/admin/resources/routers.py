"""Routers and routes over HTTP.

    GET  /routers?prefix=&after=&limit=     POST   /routers
    GET  /routers/ROUTER                    PATCH  /routers/ROUTER
    DELETE /routers/ROUTER?if_unused=
    GET  /routers/ROUTER/routes             POST   /routers/ROUTER/routes
    GET  /routers/ROUTER/routes/ID          DELETE /routers/ROUTER/routes/ID

Each takes ?tenant=NAME (`tenants`). All that a route says is its identity, so that it is never
changed, only added and removed. Its `id` is the hash of it: the same on every node, and for the
same route in another router.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from gateway.admin.http.requests import answer, flag, nothing, page_of, path_name, read_body
from gateway.admin.resources.tenants import of_tenant
from gateway.admin.resources.topic_shapes import check_new_name
from kernel.api.client import DeleteRoute, DeleteRouter, PutRoute, PutRouter
from kernel.api.model import (
    AttributesMatch,
    Match,
    Route,
    RouterInfo,
    RouterOptions,
)
from kernel.common.errors import Code, KernelError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from gateway.admin.resources.tenants import KnownTenants
    from kernel.api.client import Client

ROUTE_ID_BYTES = 8
"""Of the hash: routers have thousands of routes, not billions."""


class RouterFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a router that may change while it lives."""

    alternate: str | UnsetType | None = UNSET
    internal: bool | UnsetType = UNSET


class RouterNew(RouterFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A router to be created."""

    name: str
    match: Match = Match.EXACT


class RouterShown(Struct, frozen=True, kw_only=True):
    name: str
    match: Match
    durable: bool
    internal: bool
    alternate: str | None
    routes: int


class RouterPage(Struct, frozen=True):
    """`next`: what `after` is for the next page; null at the end."""

    routers: list[RouterShown]
    next: str | None


class RouteNew(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A route to be added. Exactly one of `topic` and `router` is given."""

    key: str = ""
    attributes: dict[str, str | int | bool | None] = {}
    """For a router that matches attributes: null stands for any value."""
    combine: AttributesMatch = AttributesMatch.ALL_OF
    topic: str | None = None
    router: str | None = None


class RouteShown(Struct, frozen=True, kw_only=True):
    id: str
    source: str
    key: str
    topic: str | None
    router: str | None
    attributes: dict[str, Any]
    combine: AttributesMatch


class RouteList(Struct, frozen=True):
    routes: list[RouteShown]


class RouterRoutes:
    """Handlers of routers and routes."""

    def __init__(self, client: Client, tenants: KnownTenants) -> None:
        self._client = client
        self._tenants = tenants

    async def list_routers(self, request: Request) -> Response:
        """Routers by name."""
        prefix, after, limit = page_of(request)
        tenant = self._tenants.of(request)
        names = [
            name
            for name in self._client.routers(tenant)
            if name > after and name.startswith(prefix)
        ]
        page = (self._client.router(tenant, name) for name in names[:limit])
        rows = [_router_shown(router) for router in page if router is not None]
        return answer(RouterPage(rows, names[limit - 1] if len(names) > limit else None))

    async def create_router(self, request: Request) -> Response:
        """A new router; 409 if the name is taken."""
        tenant = self._tenants.of(request)
        asked = await read_body(request, RouterNew)
        check_new_name("router", asked.name)
        options = _changed(RouterOptions(match=asked.match), asked)
        await self._client.administer(PutRouter(tenant, asked.name, options, must_be_new=True))
        return answer(_router_shown(await self._router(tenant, asked.name)), 201)

    async def show_router(self, request: Request) -> Response:
        """One router."""
        tenant = self._tenants.of(request)
        return answer(_router_shown(await self._router(tenant, path_name(request, "router"))))

    async def change_router(self, request: Request) -> Response:
        """Change the settings given."""
        tenant = self._tenants.of(request)
        asked = await read_body(request, RouterFields)
        router = await self._router(tenant, path_name(request, "router"))
        options = _changed(router.options, asked)
        await self._client.administer(PutRouter(tenant, router.name, options))
        return answer(_router_shown(await self._router(tenant, router.name)))

    async def delete_router(self, request: Request) -> Response:
        """Delete a router with the routes from and to it."""
        tenant = self._tenants.of(request)
        name = path_name(request, "router")
        unused = flag(request, "if_unused")
        await self._client.administer(DeleteRouter(tenant, name, if_unused=unused))
        return nothing()

    async def list_routes(self, request: Request) -> Response:
        """The routes from a router, in the order in which they came."""
        tenant = self._tenants.of(request)
        router = await self._router(tenant, path_name(request, "router"))
        return answer(RouteList([_route_shown(router.name, each) for each in router.routes]))

    async def create_route(self, request: Request) -> Response:
        """Add a route. Adding it again changes nothing."""
        tenant = self._tenants.of(request)
        route = _new_route(await read_body(request, RouteNew))
        name = path_name(request, "router")
        await self._client.administer(PutRoute(tenant, name, route))
        return answer(_route_shown(name, route), 201)

    async def show_route(self, request: Request) -> Response:
        """One route."""
        name, route = await self._route(self._tenants.of(request), request)
        return answer(_route_shown(name, route))

    async def delete_route(self, request: Request) -> Response:
        """Remove a route."""
        tenant = self._tenants.of(request)
        name, route = await self._route(tenant, request)
        await self._client.administer(DeleteRoute(tenant, name, route))
        return nothing()

    async def _router(self, tenant: str, name: str) -> RouterInfo:
        await self._client.load(tenant, topics=(), routers=(name,))
        router = self._client.router(tenant, name)
        if router is None:
            raise KernelError(Code.NOT_FOUND, f"no router {name}{of_tenant(tenant)}")
        return router

    async def _route(self, tenant: str, request: Request) -> tuple[str, Route]:
        router = await self._router(tenant, path_name(request, "router"))
        wanted = path_name(request, "route")
        for route in router.routes:
            if route_id(route) == wanted:
                return router.name, route
        raise KernelError(Code.NOT_FOUND, f"no route {wanted} from router {router.name}")


def route_id(route: Route) -> str:
    """The id of a route: 16 hexadecimal digits."""
    return blake2b(msgspec.msgpack.encode(route), digest_size=ROUTE_ID_BYTES).hexdigest()


def _new_route(asked: RouteNew) -> Route:
    if (asked.topic is None) == (asked.router is None):
        raise KernelError(Code.INVALID_ARGUMENT, "a route leads to one topic or to one router")
    attributes = tuple(
        (name, msgspec.msgpack.encode(value)) for name, value in sorted(asked.attributes.items())
    )
    return Route(
        key=asked.key,
        attributes=attributes,
        combine=asked.combine,
        topic=asked.topic,
        router=asked.router,
    )


def _changed(options: RouterOptions, asked: RouterFields) -> RouterOptions:
    fields = {"alternate": asked.alternate, "internal": asked.internal}
    given = {name: value for name, value in fields.items() if value is not UNSET}
    return msgspec.structs.replace(options, **given)


def _router_shown(router: RouterInfo) -> RouterShown:
    return RouterShown(
        name=router.name,
        match=router.options.match,
        durable=router.options.durable,
        internal=router.options.internal,
        alternate=router.options.alternate,
        routes=len(router.routes),
    )


def _route_shown(source: str, route: Route) -> RouteShown:
    return RouteShown(
        id=route_id(route),
        source=source,
        key=route.key,
        topic=route.topic,
        router=route.router,
        attributes={name: msgspec.msgpack.decode(value) for name, value in route.attributes},
        combine=route.combine,
    )
