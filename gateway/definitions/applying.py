"""The changes that a document takes, made: kind after kind, so that nothing refers to what is not
there.

What cannot be made is told by name, and the rest goes on: the next request has only that to do.
After FAILED_MAX failures nothing more is begun, for then it is not the single thing that fails.
"""

from __future__ import annotations

import asyncio
from itertools import groupby
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from adapters.definitions import (
    KeyDefined,
    PolicyDefined,
    RouterDefined,
    TenantSettings,
    TopicDefined,
    UserDefined,
    group_options,
    route_of,
    router_options,
    topic_options,
    topic_size,
)
from auth.errors import AuthError
from auth.users.store import POLICIES_PER_TENANT_MAX, USERS_MAX
from gateway.access.tenant_records import TenantState
from gateway.admin.resources.principals import OWN_POLICIES_MAX, OWN_USERS_MAX
from gateway.admin.resources.topic_size_changes import known_size, put_size
from gateway.admin.resources.topic_trace_changes import known_mode, put_mode
from gateway.definitions.planning import Fault, fault_of
from gateway.definitions.things import Thing, entity_of
from kernel.api.changes import PutRoute, PutRouter, PutTopic
from kernel.api.model import TOPICS_ROUTER, TopicInfo
from kernel.api.tracing import TraceMode
from kernel.common.errors import KernelError
from kernel.quotas.limits import Entity, Scope

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from adapters.definitions import Definitions
    from gateway.access.limit_records import LimitRecords
    from gateway.access.tenant_book import TenantBook
    from gateway.admin.http.callers import Caller
    from gateway.admin.resources.principals import Principals
    from kernel.api.client import Client
    from kernel.api.model import RouterOptions, TopicOptions

    _Options = TypeVar("_Options", TopicOptions, RouterOptions)

AT_ONCE: Final = 32
"""Changes under way together: they share commits, and leave room for those of clients."""

FAILED_MAX: Final = 20


class Applying:
    """Makes the changes of one request."""

    def __init__(
        self,
        client: Client,
        principals: Principals,
        limits: LimitRecords,
        caller: Caller,
        predeclared: Mapping[str, RouterOptions],
        book: TenantBook,
        document: Definitions,
    ) -> None:
        self._book = book
        self._document = document
        self._client = client
        self._principals = principals
        self._limits = limits
        self._caller = caller
        self._predeclared = predeclared
        self.failed: list[Fault] = []

    async def run(self, things: Sequence[Thing]) -> list[int]:
        """Make them, which come in the order of kinds; the places of those that are made."""
        made: list[int] = []
        numbered = list(enumerate(things))
        for _, of_kind in groupby(numbered, key=lambda each: each[1].kind):
            waiting = iter(list(of_kind))
            async with asyncio.TaskGroup() as tasks:
                for _ in range(AT_ONCE):
                    tasks.create_task(self._some(waiting, made))
        return made

    async def _some(self, waiting: Iterator[tuple[int, Thing]], made: list[int]) -> None:
        """`waiting` is shared by all tasks of a kind: each takes the next one."""
        for number, thing in waiting:
            if len(self.failed) >= FAILED_MAX:
                return
            try:
                await self._make(thing)
            except (KernelError, AuthError) as error:
                self.failed.append(fault_of(thing, error.message))
            else:
                made.append(number)

    async def _make(self, thing: Thing) -> None:
        """Raises KernelError, AuthError."""
        _, tenant, name, value, source = thing
        is_node = self._caller.administers_node
        if isinstance(value, TenantSettings):
            await self._put_tenant(tenant, value)
        elif isinstance(value, PolicyDefined):
            most = POLICIES_PER_TENANT_MAX if is_node else OWN_POLICIES_MAX
            await self._principals.put_policy(tenant, name, value.rules, most, value.note)
        elif isinstance(value, UserDefined):
            await self._principals.put_user(
                tenant,
                name,
                password_hash=value.password_hash,
                policies=value.policies,
                enabled=value.enabled,
                most=USERS_MAX if is_node else OWN_USERS_MAX,
            )
        elif isinstance(value, KeyDefined):
            await self._principals.put_key(
                tenant,
                name,
                user=value.user,
                sealed_secret=value.sealed_secret,
                enabled=value.enabled,
            )
        elif isinstance(value, dict):
            entity = entity_of(tenant, name)
            known = self._limits.records.get(entity)
            lifted = dict.fromkeys(known.named() if known is not None else ())
            await self._limits.alter(entity, {**lifted, **value}, str(self._caller))
        elif isinstance(value, TopicDefined):
            await self._put_topic(tenant, name, value)
        elif isinstance(value, RouterDefined):
            await self._client.load(tenant, topics=(), routers=(name,))
            router = self._client.router(tenant, name)
            options = router_options(value)
            if router is not None:
                options = _with_declarations(options, router.options)
            elif name in self._predeclared:
                options = self._predeclared[name]
            await self._put_router(tenant, name, options)
        else:
            if source in self._predeclared:
                await self._predeclare(tenant, source)
            if value.router is not None and value.router in self._predeclared:
                await self._predeclare(tenant, value.router)
            await self._client.administer(PutRoute(tenant, source, route_of(value)))

    async def _put_tenant(self, name: str, value: TenantSettings) -> None:
        by = str(self._caller)
        if self._book.state(name) is TenantState.HERE:
            lifted: dict[str, str | None] = dict.fromkeys(self._book.tenants()[name].known_as)
            await self._book.alter(name, {**lifted, **value.known_as}, by, value.sign_in)
            return
        limits = self._document.tenants[name].limits.get(Scope.TENANT.value)
        if limits:
            # First: it is never there without them.
            await self._limits.alter(Entity(Scope.TENANT, name, ""), limits, by)
        await self._book.add(name, value.known_as, by, sign_in=value.sign_in, same_customer=False)

    async def _put_topic(self, tenant: str, name: str, value: TopicDefined) -> None:
        await self._client.load(tenant, topics=(name,), routers=())
        topic = self._client.topic(tenant, name)
        options = topic_options(value)
        if topic is not None:
            options = _with_declarations(options, topic.options)
        groups = {each: group_options(value.groups[each]) for each in value.groups}
        made = await self._client.administer(PutTopic(tenant, name, options, groups))
        assert isinstance(made, TopicInfo)
        if value.size is not None:
            size = topic_size(value.size, made.id)
            if size != known_size(self._client, made):
                await put_size(self._client, made, size)
        if value.trace is not None:
            trace = TraceMode(value.trace)
            if trace is not known_mode(self._client, made):
                await put_mode(self._client, made, trace)

    async def _put_router(self, tenant: str, name: str, options: RouterOptions) -> None:
        reserved = name in self._predeclared
        await self._client.administer(PutRouter(tenant, name, options, reserved_name=reserved))

    async def _predeclare(self, tenant: str, name: str) -> None:
        """Make a router that its adapter would make when it is first used."""
        if name == TOPICS_ROUTER:
            return
        await self._client.load(tenant, topics=(), routers=(name,))
        if self._client.router(tenant, name) is None:
            await self._put_router(tenant, name, self._predeclared[name])


def _with_declarations(wanted: _Options, now: _Options) -> _Options:
    """What adapters have been told stays if a document does not say it."""
    if wanted.declarations:
        return wanted
    return msgspec.structs.replace(wanted, declarations=now.declarations)
