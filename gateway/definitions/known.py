"""The things that a server has, as documents say them.

Not among them: what lives in the memory of a process (topics and routers that are not durable),
what the server makes for itself, limits of the settings, and when a thing was changed, how often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from adapters.definitions import (
    KeyDefined,
    PolicyDefined,
    RouteDefined,
    RouterDefined,
    TenantSettings,
    UserDefined,
    route_defined,
    router_defined,
    topic_defined,
)
from auth.principal import DEFAULT_TENANT
from gateway.access.tenant_records import TenantState
from gateway.admin.resources.topic_size_changes import known_size
from gateway.admin.resources.topic_trace_changes import known_mode
from gateway.definitions.things import Limited, Thing, Value, entity_of, route_name, spelled_entity
from kernel.common.limits import RESERVED_PREFIXES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterator, Sequence

    from adapters.definitions import TopicDefined
    from auth.policies.policy_rules import Policy
    from auth.users.records import AccessKey, User
    from auth.users.store import AuthStore
    from gateway.access.limit_records import LimitRecords
    from gateway.access.tenant_book import TenantBook
    from kernel.api.client import Client
    from kernel.api.model import RouterInfo, TopicInfo

LOADED_AT_ONCE: Final = 200
"""Names that a gateway asks the stores for in one go."""


class Known:
    """What there is of each kind: made anew for each request, for it keeps what it has seen."""

    def __init__(
        self, client: Client, store: AuthStore, limits: LimitRecords, book: TenantBook
    ) -> None:
        self.client = client
        self.book = book
        self.store = store
        self.limits = limits
        self._routes: dict[tuple[str, str], frozenset[str]] = {}

    def tenant(self, name: str) -> TenantSettings | None:
        """A tenant that is here, and is not being removed. Of the one that is always there nothing
        is said unless it is something.
        """
        if self.book.state(name) is not TenantState.HERE:
            return None
        known_as = self.book.tenants()[name].known_as
        found = TenantSettings(known_as=dict(known_as), sign_in=name not in self.book.barred)
        return None if name == DEFAULT_TENANT and found == TenantSettings() else found

    async def topic(self, tenant: str, name: str) -> TopicInfo | None:
        """A topic, whatever it is."""
        await self.client.load(tenant, topics=(name,), routers=())
        return self.client.topic(tenant, name)

    async def router(self, tenant: str, name: str) -> RouterInfo | None:
        """A router, whatever it is."""
        await self.client.load(tenant, topics=(), routers=(name,))
        return self.client.router(tenant, name)

    # --- One thing --------------------------------------------------------------------------

    async def same(self, thing: Thing) -> Value | None:
        """What there is of the kind and name of a thing; None: nothing."""
        kind, tenant, name, value, source = thing
        if kind == "tenants":
            always = TenantSettings() if name == DEFAULT_TENANT else None
            return self.tenant(name) or always
        if kind == "policies":
            policy = self.store.policy(tenant, name)
            return _policy(policy) if policy is not None else None
        if kind == "users":
            user = self.store.user(tenant, name)
            return _user(user) if user is not None else None
        if kind == "keys":
            key = self.store.access_key(name)
            return _key(key) if key is not None and key.tenant == tenant else None
        if kind == "limits":
            found = self.limits.records.get(entity_of(tenant, name))
            return found.named() if found is not None else None
        if kind == "topics":
            topic = await self.topic(tenant, name)
            return self._topic(topic) if topic is not None else None
        if kind == "routers":
            known = await self.router(tenant, name)
            return router_defined(known.options, []) if known is not None else None
        return value if name in await self._routes_from(tenant, source) else None

    async def _routes_from(self, tenant: str, source: str) -> frozenset[str]:
        """The routes from a router, by the names that documents give them."""
        found = self._routes.get((tenant, source))
        if found is None:
            router = await self.router(tenant, source)
            routes = router.routes if router is not None else ()
            found = frozenset(route_name(source, route_defined(each)) for each in routes)
            self._routes[tenant, source] = found
        return found

    # --- All of them ------------------------------------------------------------------------

    def limited(self, tenant: str) -> Iterator[tuple[str, Limited]]:
        """Limits that were set at run time, of what is a tenant's; without a name of nobody's."""
        for entity, limits in sorted(
            self.limits.records.items(), key=lambda each: (each[0].scope.value, each[0].name)
        ):
            whose, name = spelled_entity(entity)
            if whose == tenant:
                yield name, limits.named()

    async def things(
        self, tenant: str, kind: str, only: str | None = None
    ) -> AsyncIterator[tuple[str, Value]]:
        """All of a tenant's things of a kind, by name, or `only` the one of a name; routes stand in
        their routers.
        """
        if only is not None:
            found = await self._one(tenant, kind, only)
            if found is not None:
                yield only, found
        elif kind == "policies":
            for policy in self.store.policies(tenant):
                yield policy.name, _policy(policy)
        elif kind == "users":
            for user in self.store.users(tenant):
                yield user.name, _user(user)
        elif kind == "keys":
            for user in self.store.users(tenant):
                for key in self.store.access_keys_of(tenant, user.name):
                    yield key.key_id, _key(key)
        elif kind == "limits":
            for name, limits in self.limited(tenant):
                yield name, limits
        elif kind == "topics":
            for topic in sorted(self.client.topics(tenant), key=lambda each: each.name):
                if is_defined_topic(topic):
                    yield topic.name, self._topic(topic)

    def _topic(self, topic: TopicInfo) -> TopicDefined:
        size, trace = known_size(self.client, topic), known_mode(self.client, topic)
        return topic_defined(topic.options, topic.groups, size, trace)

    async def _one(self, tenant: str, kind: str, name: str) -> Value | None:
        """The thing of a name that documents have."""
        if kind == "topics":
            topic = await self.topic(tenant, name)
            if topic is None or not is_defined_topic(topic):
                return None
            return self._topic(topic)
        if kind == "limits":
            return dict(self.limited(tenant)).get(name)
        # Its value is not looked at: only routes are told apart by it.
        return await self.same(Thing(kind, tenant, name, {}))

    async def routers(
        self, tenant: str, kinds: Collection[str], only: str | None = None
    ) -> AsyncIterator[tuple[str, RouterDefined]]:
        """All of a tenant's routers, by name, each with its routes if they are asked for."""
        names = self.client.routers(tenant) if only is None else [only]
        for first in range(0, len(names), LOADED_AT_ONCE):
            some = names[first : first + LOADED_AT_ONCE]
            await self.client.load(tenant, topics=(), routers=some)
            for router in filter(None, (self.client.router(tenant, name) for name in some)):
                if not router.options.durable:
                    continue
                routes = [] if "routes" not in kinds else await self._kept_routes(tenant, router)
                yield router.name, router_defined(router.options, routes)

    async def _kept_routes(self, tenant: str, router: RouterInfo) -> list[RouteDefined]:
        """Those that lead to something that documents have."""
        ends = [each.topic for each in router.routes if each.topic is not None]
        further = [each.router for each in router.routes if each.router is not None]
        await self.client.load(tenant, topics=_once(ends), routers=_once(further))
        kept = []
        for route in router.routes:
            topic = self.client.topic(tenant, route.topic) if route.topic is not None else None
            after = self.client.router(tenant, route.router) if route.router is not None else None
            if (topic is not None and is_defined_topic(topic)) or (
                after is not None and after.options.durable
            ):
                kept.append(route_defined(route))
        return sorted(kept, key=lambda each: route_name("", each))


def is_defined_topic(topic: TopicInfo) -> bool:
    """Whether documents have a topic."""
    return topic.options.durable and not topic.name.startswith(RESERVED_PREFIXES)


def _once(names: Sequence[str]) -> Sequence[str]:
    return tuple(dict.fromkeys(names))


def _policy(policy: Policy) -> PolicyDefined:
    return PolicyDefined(rules=[str(each) for each in policy.rules], note=policy.note)


def _user(user: User) -> UserDefined:
    return UserDefined(
        policies=list(user.policies), password_hash=user.password_hash, enabled=user.enabled
    )


def _key(key: AccessKey) -> KeyDefined:
    return KeyDefined(user=key.user, sealed_secret=key.sealed_secret, enabled=key.enabled)
