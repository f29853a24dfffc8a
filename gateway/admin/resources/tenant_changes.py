"""Tenants over HTTP: made, shown, changed and removed while everything runs (ADR 33).

    POST   /tenants             a new one, with its names, limits, and whether anybody signs in
    GET    /tenants/NAME        one, to whoever administers it
    PATCH  /tenants/NAME        other names or limits; signing in off or on
    DELETE /tenants/NAME        it and all that it has goes: begun when this is answered

Only who administers the node changes any of it: a tenant's own administrator neither makes tenants
nor gives the own one other limits.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from auth.principal import name_fault
from gateway.access.tenant_records import TenantState
from gateway.admin.http.callers import caller_of
from gateway.admin.http.requests import answer, number, path_name, read_body
from kernel.common.errors import Code, KernelError
from kernel.common.feature_levels import FEATURES, TENANTS
from kernel.quotas.limits import Entity, Scope

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from adapters.base import TenantWord
    from gateway.access.limit_records import LimitRecords
    from gateway.access.tenant_book import TenantBook
    from gateway.access.tenant_removal import TenantRemoval
    from gateway.admin.resources.tenants import KnownTenants
    from kernel.api.client import Client
    from kernel.cluster.messages import FeatureList

    class Features(Protocol):
        """Of the log."""

        async def features(self) -> FeatureList:
            """All there are. Raises KernelError."""


WAIT_SECONDS_MAX = 30
"""Less than clients of HTTP wait for an answer."""

LOOK_SECONDS = 0.2


class TenantNew(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    known_as: dict[str, str] = {}
    """Its name by protocol; its own where nothing is said."""
    limits: dict[str, int | None] = {}
    """As `PATCH /limits/tenant/NAME` takes them."""
    sign_in: bool = True
    """Whether anybody of it signs in."""
    same_customer: bool = False
    """One of that name was removed in this month, and was the same: one bill has both."""


class TenantFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is left out stays."""

    known_as: dict[str, str | None] = {}
    """Null: its own name again."""
    limits: dict[str, int | None] = {}
    sign_in: bool | None = None
    """False: whoever is connected is sent away; what the tenant has stays."""


class TenantShown(Struct, frozen=True, kw_only=True):
    name: str
    state: str
    """`here`; `leaving`: it is being removed; `gone`: it was, in this month."""
    sign_in: bool
    known_as: dict[str, str]
    """What each protocol calls it that has a word for tenants."""
    limits: dict[str, int]
    users: int
    topics: int
    is_configured: bool
    """The settings name it."""


class TenantRoutes:
    """Handlers of one tenant."""

    def __init__(
        self,
        known: KnownTenants,
        book: TenantBook,
        limits: LimitRecords,
        client: Client,
        words: Mapping[str, TenantWord],
        features: Features | None,
        removal: TenantRemoval,
    ) -> None:
        """`words`: for a tenant, by protocol."""
        self._known = known
        self._book = book
        self._limits = limits
        self._client = client
        self._words = words
        self._features = features
        self._removal = removal

    async def make_tenant(self, request: Request) -> Response:
        """Make a tenant; whoever administers it is made by POST /users?tenant=NAME."""
        new = await read_body(request, TenantNew)
        fault = name_fault("tenant", new.name)
        if fault is not None:
            raise KernelError(Code.INVALID_ARGUMENT, fault)
        await self._check_feature()
        self._book.check_new(new.name, new.known_as, same_customer=new.same_customer)
        if self._book.state(new.name) is TenantState.GONE and await self._removal.clear(new.name):
            # A gateway that had not heard of the removal has made something since.
            message = f"something of the tenant {new.name} that was removed was left: try again"
            raise KernelError(Code.IN_USE, message)
        by = str(caller_of(request))
        if new.limits:
            # First: it is never there without them.
            await self._limits.alter(_of(new.name), new.limits, by)
        await self._book.add(
            new.name,
            new.known_as,
            by,
            sign_in=new.sign_in,
            same_customer=new.same_customer,
        )
        return answer(self._shown(new.name), 201)

    async def show_tenant(self, request: Request) -> Response:
        """One tenant, to whoever administers it; if asked to, once it is not being removed."""
        name = path_name(request, "tenant")
        caller_of(request).check(name)
        looks = number(request, "wait", 0, most=WAIT_SECONDS_MAX) / LOOK_SECONDS
        while looks > 0 and self._book.state(name) is TenantState.LEAVING:
            await asyncio.sleep(LOOK_SECONDS)
            looks -= 1
        if self._book.state(name) is None and not self._known.has(name):
            raise KernelError(Code.NOT_FOUND, f"there is no tenant {name}")
        return answer(self._shown(name))

    async def change_tenant(self, request: Request) -> Response:
        """Change names, limits, and whether anybody signs in."""
        name, by = path_name(request, "tenant"), str(caller_of(request))
        fields = await read_body(request, TenantFields)
        await self._check_feature()
        if self._book.state(name) is None and self._known.has(name):
            await self._book.add(name, {}, by, sign_in=True, same_customer=False)
        if fields.known_as or fields.sign_in is not None:
            await self._book.alter(name, fields.known_as, by, fields.sign_in)
        elif self._book.state(name) is not TenantState.HERE:
            raise KernelError(Code.NOT_FOUND, f"there is no tenant {name}, or it is being removed")
        if fields.limits:
            await self._limits.alter(_of(name), fields.limits, by)
        return answer(self._shown(name))

    async def remove_tenant(self, request: Request) -> Response:
        """Remove a tenant with its users, keys, policies, limits, topics, messages and sessions.
        Answered when it has begun, and nobody of it signs in; GET says when it is done.
        """
        name, by = path_name(request, "tenant"), str(caller_of(request))
        await self._check_feature()
        if self._book.state(name) is None and self._known.has(name):
            # Its row was taken out of the settings.
            await self._book.add(name, {}, by, sign_in=False, same_customer=False)
        await self._book.remove(name, by)
        return answer(self._shown(name), 202)

    async def _check_feature(self) -> None:
        await check_feature(self._features, TENANTS)

    def _shown(self, name: str) -> TenantShown:
        state = self._book.state(name)
        limits = self._limits.records.get(_of(name)) or self._limits.seeds.get(_of(name))
        return TenantShown(
            name=name,
            state=(state or TenantState.HERE).value,
            sign_in=name not in self._book.barred,
            known_as={}
            if state is TenantState.GONE
            else {each: self._book.names_in(each).get(name, name) for each in self._words},
            limits={} if limits is None else limits.named(),
            users=self._known.users_of(name),
            topics=sum(1 for _ in self._client.topics(name)),
            is_configured=name in self._book.seeds,
        )


async def check_feature(features: Features | None, level: int) -> None:
    """Raise KernelError NOT_ALLOWED while a feature of the log is off."""
    found = [] if features is None else (await features.features()).features
    if not any(each.level == level and each.on for each in found):
        name = FEATURES[level - 1].name
        message = (
            f"the feature `{name}` of the log is off: `weir cluster features enable {name}`"
            " turns it on, once all processes are of this build"
        )
        raise KernelError(Code.NOT_ALLOWED, message)


def _of(name: str) -> Entity:
    return Entity(Scope.TENANT, name, "")
