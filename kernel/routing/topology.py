"""What a gateway knows of topics, routers and routes: its cache of definitions, for look-ups.

`version` rises with every change that could make a cached `Destinations` or `TopicInfo` stale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ..api.model import TOPICS_ROUTER, Route, RouterInfo, RouterOptions, TopicInfo
from ..common.errors import Code, KernelError
from ..common.ids import TRANSIENT_GROUP, RaftGroup, home_of
from ..common.names import ByName
from .destinations import Found
from .routing import RouteTable, resolve
from .tree_routes import TreeRoutes


class Topology:
    """Definitions by (tenant, name)."""

    def __init__(self, groups: Sequence[RaftGroup] = (RaftGroup(1),)) -> None:
        """`groups` are those that names have their home in."""
        self._version = 1
        self.tree = TreeRoutes(groups, self._changed, self._with_copies)
        self.topics: ByName[TopicInfo] = ByName()
        self._tables: dict[tuple[str, str], RouteTable] = {}
        self._to: dict[tuple[str, str, str], dict[tuple[str, Route], None]] = {}
        """(tenant, "topic" or "router", name) to the routes that lead there."""
        self.gone: Callable[[str, str, str], None] = _nobody_minds
        """Told of each thing that is gone and did not live in this process: (tenant, "topic" or
        "router", name)."""
        self.resized: Callable[[TopicInfo | None, TopicInfo | None], None] = _nobody_publishes
        """Told of each topic that was resized: what was known of it, and is known now (None: it is
        gone)."""
        self.further_routes: Callable[[str, str], Iterable[Route]] = _no_routes
        """A source of further routes from a router, which may be known before the router is: asked
        whenever one comes or changes."""

    @property
    def version(self) -> int:
        """Rises with every change that could make something handed out stale."""
        return self._version

    def _changed(self) -> None:
        self._version += 1
        self.tree.forget()

    def put_topic(self, topic: TopicInfo) -> None:
        """A topic is new or has changed."""
        known = self.topics.get((topic.tenant, topic.name))
        self.tree.put_topic(topic)
        self.topics[topic.tenant, topic.name] = topic
        if topic.ring:
            self.resized(known if known is not None and known.id == topic.id else None, topic)
        self._changed()

    def remove_topic(self, topic: TopicInfo) -> None:
        """A topic is gone."""
        known = self.topics.get((topic.tenant, topic.name))
        if known is not None and known.id == topic.id:
            del self.topics[topic.tenant, topic.name]
            self.tree.remove_topic(topic)
            self._changed()
            self.resized(known, None)
            if home_of(topic.id) != TRANSIENT_GROUP:
                self.gone(topic.tenant, "topic", topic.name)

    def routers(self, tenant: str) -> list[str]:
        """Names of a tenant's routers, sorted."""
        return sorted(name for owner, name in self._tables if owner == tenant)

    def put_router(
        self, tenant: str, name: str, options: RouterOptions, routes: Iterable[Route]
    ) -> None:
        """A router is new or has changed its options; `routes` are further ones it has."""
        known = self._tables.get((tenant, name))
        table = self._tables[tenant, name] = RouteTable(options)
        further = *routes, *self.further_routes(tenant, name)
        for route in dict.fromkeys((*(known.routes if known is not None else ()), *further)):
            table.add(route)
            self._note(tenant, name, route)
        if options.tree:
            self.tree.put_door(
                tenant, name, lambda key: self._reached(tenant, name, key, None, True)[0]
            )
        else:
            self.tree.remove_door(tenant, name)
        self._changed()

    def remove_router(self, tenant: str, name: str, *, was_here: bool = False) -> None:
        """A router is gone, with its routes. `was_here`: it lived in this process's memory."""
        table = self._tables.pop((tenant, name), None)
        self.tree.remove_door(tenant, name)
        if table is not None:
            for route in table.routes:
                self._forget(tenant, name, route)
            self._changed()
            if not was_here:
                self.gone(tenant, "router", name)

    def add_route(self, tenant: str, router: str, route: Route) -> None:
        """A route has come."""
        table = self._tables[tenant, router]
        if route not in table.routes:
            table.add(route)
            self._note(tenant, router, route)
            self._changed()

    def remove_route(self, tenant: str, router: str, route: Route) -> None:
        """A route has gone."""
        table = self._tables.get((tenant, router))
        if table is not None and route in table.routes:
            table.remove(route)
            self._forget(tenant, router, route)
            self._changed()

    def _note(self, tenant: str, router: str, route: Route) -> None:
        self._to.setdefault(_target(tenant, route), {})[router, route] = None

    def _forget(self, tenant: str, router: str, route: Route) -> None:
        key = _target(tenant, route)
        routes = self._to.get(key)
        if routes is not None:
            routes.pop((router, route), None)
            if not routes:
                del self._to[key]

    def routes_to(self, tenant: str, kind: str, name: str) -> list[tuple[str, Route]]:
        """(router, route) pairs that lead to a "topic" or "router"."""
        return list(self._to.get((tenant, kind, name), ()))

    def dangling(self) -> list[tuple[str, str, Route]]:
        """(tenant, router, route) of every route whose end does not exist."""
        return [
            (tenant, router, route)
            for (tenant, kind, name), routes in self._to.items()
            if (tenant, name) not in (self.topics if kind == "topic" else self._tables)
            for router, route in routes
        ]

    def is_router(self, tenant: str, name: str) -> bool:
        """Whether routes can lead from a name now."""
        return (tenant, name) in self._tables

    def router_options(self, tenant: str, name: str) -> RouterOptions | None:
        """Options of a router; None if there is none."""
        table = self._tables.get((tenant, name))
        if table is None:
            return RouterOptions() if name == TOPICS_ROUTER else None
        return table.options

    def router_info(self, tenant: str, name: str) -> RouterInfo | None:
        """A router as adapters see it."""
        table = self._tables.get((tenant, name))
        if table is None:
            built_in = RouterInfo(tenant, name, self.version, RouterOptions(), ())
            return built_in if name == TOPICS_ROUTER else None
        return RouterInfo(tenant, name, self.version, table.options, tuple(table.routes))

    def has_route(self, tenant: str, router: str, route: Route) -> bool:
        """Whether the route is there."""
        table = self._tables.get((tenant, router))
        return table is not None and route in table.routes

    def route_count(self, tenant: str, router: str) -> int:
        """Routes from a router."""
        table = self._tables.get((tenant, router))
        return len(table.routes) if table is not None else 0

    def to_topic(self, topic: TopicInfo) -> Found:
        """Destinations of a publish straight to one topic."""
        topics = self._with_copies((topic,))
        if topic.options.tree:
            return self.tree.at_door(topic.tenant, topic.name, topics, but=topic.name)
        return Found(topics)

    def find(
        self, tenant: str, router: str, key: str, attributes: Mapping[str, object] | None
    ) -> Found:
        """Destinations of a publish. Raises KernelError NOT_FOUND if there is no such router."""
        if router == TOPICS_ROUTER:
            topic = self.topics.get((tenant, key))
            return self.to_topic(topic) if topic is not None else Found(())
        if (tenant, router) not in self._tables:
            raise KernelError(Code.NOT_FOUND, f"no router {router}")
        topics, in_tree = self._reached(tenant, router, key, attributes)
        if in_tree:
            return self.tree.at_door(tenant, key, topics)
        return Found(topics)

    def _reached(
        self,
        tenant: str,
        router: str,
        key: str,
        attributes: Mapping[str, object] | None,
        is_tree_name: bool = False,
    ) -> tuple[tuple[TopicInfo, ...], bool]:
        """Topics that a publish reaches, and whether it comes by a door of the tree."""
        table_of = self._tables.get
        names, visited = resolve(
            lambda name: table_of((tenant, name)),
            router,
            key,
            attributes,
            is_tree_name=is_tree_name,
        )
        topics = (self.topics.get((tenant, name)) for name in names)
        tables = (table_of((tenant, name)) for name in visited)
        in_tree = any(table is not None and table.options.tree for table in tables)
        found = tuple(topic for topic in topics if topic is not None)
        return self._with_copies(found), in_tree

    def _with_copies(self, topics: tuple[TopicInfo, ...]) -> tuple[TopicInfo, ...]:
        """The topics, and those to which routes of TOPICS_ROUTER copy what is written to them, or
        to a copy; each once.
        """
        table = self._tables.get((topics[0].tenant, TOPICS_ROUTER)) if topics else None
        if table is None or not table.routes:
            return topics
        found = {topic.name: topic for topic in topics}
        ahead = list(topics)
        while ahead:
            written = ahead.pop()
            for route in table.match(written.name, None):
                copy = self.topics.get((written.tenant, route.topic or ""))
                if copy is not None and copy.name not in found:
                    found[copy.name] = copy
                    ahead.append(copy)
        return tuple(found.values())


def _nobody_minds(_tenant: str, _kind: str, _name: str) -> None:
    """What happens when something is gone, if nobody else looks after it."""


def _nobody_publishes(_before: TopicInfo | None, _after: TopicInfo | None) -> None:
    """What follows from a resize, if nothing is published by these definitions."""


def _no_routes(_tenant: str, _router: str) -> Iterable[Route]:
    """None: there is no further source."""
    return ()


def _target(tenant: str, route: Route) -> tuple[str, str, str]:
    if route.topic is not None:
        return tenant, "topic", route.topic
    return tenant, "router", route.router or ""
