"""Why a thing of a document cannot be had here: looked at before anything is changed.

Two questions. `form` asks of the thing alone, whether it is there already or not; `change` of what
it would change: rights, what it refers to, and what a thing that is there keeps for good.

What a tenant's administrator may change with single calls, it may with a document, and no more: not
limits, and no access key whose id it chooses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from adapters.definitions import (
    KeyDefined,
    PolicyDefined,
    RouteDefined,
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
from auth.policies.built_in import BUILT_IN_POLICIES
from auth.policies.policy_rules import Policy, parse_rule
from auth.principal import name_fault
from auth.users.directory import secret_context
from auth.users.records import AccessKey, User, record_fault
from gateway.admin.http.callers import TAKES_NODE
from gateway.admin.resources.topic_shapes import check_new_name
from gateway.admin.resources.topic_size_changes import check_size
from gateway.definitions.things import Thing, entity_of
from kernel.api.changes import PutRoute, PutRouter, PutTopic
from kernel.api.model import TOPICS_ROUTER, QueueRef, TopicInfo
from kernel.common.errors import KernelError
from kernel.common.ids import QueueId, RaftGroup, TopicId
from kernel.common.limits import RESERVED_PREFIXES
from kernel.definitions import definition_checks
from kernel.quotas.limits import KINDS, LIMIT_MAX, Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from adapters.definitions import Definitions
    from auth.private_files.sealed import KeyRing
    from gateway.admin.http.callers import Caller
    from gateway.definitions.known import Known
    from gateway.definitions.things import Value
    from kernel.api.model import RouterOptions

_FIXED_OF_TOPICS: Final = ("kind", "durable", "queues", "priority_max")
_FIXED_OF_ROUTERS: Final = ("match", "durable", "tree")

IN_MEMORY: Final = "it lives in the memory of a process, and is made by who uses it"


class Checks:
    """Of one document, for one caller."""

    def __init__(
        self,
        document: Definitions,
        known: Known,
        keys: KeyRing,
        caller: Caller,
        has_tenant: Callable[[str], bool],
        predeclared: Mapping[str, RouterOptions],
        makes: Collection[str],
    ) -> None:
        """`predeclared`: routers with reserved names, which adapters make when first used; `makes`:
        tenants that the document makes if they are not there, before all else.
        """
        self._makes = makes
        self._document = document
        self._known = known
        self._keys = keys
        self._caller = caller
        self._has_tenant = has_tenant
        self._predeclared = predeclared

    def tenant(self, thing: Thing) -> str | None:
        """What is wrong with a thing's tenant. Whoever may not administer it gets the same answer
        whether there is one or not.
        """
        if not thing.tenant:
            if self._caller.administers_node:
                return None
            return f"limits of no tenant take {TAKES_NODE}"
        try:
            self._caller.check(thing.tenant)
        except KernelError as error:
            return error.message
        if thing.kind == "tenants":
            return None
        if not self._has_tenant(thing.tenant) and thing.tenant not in self._makes:
            return f"there is no tenant {thing.tenant} here, or it is being removed"
        return None

    # --- The thing alone --------------------------------------------------------------------

    def form(self, thing: Thing) -> str | None:
        """What is wrong with a thing, whatever there is."""
        try:
            return self._form(thing, thing.value)
        except (KernelError, AuthError) as error:
            return error.message
        except ValueError as error:
            return str(error) or "it cannot be read"

    def _form(self, thing: Thing, value: Value) -> str | None:
        _, tenant, name, *_ = thing
        if isinstance(value, TenantSettings):
            return name_fault("tenant", name)
        if isinstance(value, PolicyDefined):
            rules = tuple(map(parse_rule, value.rules))
            if name in BUILT_IN_POLICIES:
                return "this policy is built in"
            return record_fault(Policy(tenant=tenant, name=name, rules=rules, note=value.note))
        if isinstance(value, UserDefined):
            policies = tuple(value.policies)
            return record_fault(
                User(
                    tenant=tenant,
                    name=name,
                    policies=policies,
                    password_hash=value.password_hash,
                )
            )
        if isinstance(value, KeyDefined):
            sealed = value.sealed_secret or b"-"
            return record_fault(
                AccessKey(key_id=name, tenant=tenant, user=value.user, sealed_secret=sealed)
            )
        if isinstance(value, dict):
            return _limits_fault(tenant, name, value)
        if isinstance(value, TopicDefined):
            if not value.durable or value.owner is not None:
                return IN_MEMORY
            definition_checks.check_name(tenant, name)
            definition_checks.check_topic(_put_topic(thing, value), None)
            if value.size is not None:
                topic_size(value.size, 0)
            return None
        if isinstance(value, RouterDefined):
            if not value.durable:
                return IN_MEMORY
            definition_checks.check_name(tenant, name)
            return None
        definition_checks.check_route(PutRoute(tenant, thing.source, route_of(value)))
        return None

    # --- What would change ------------------------------------------------------------------

    async def change(self, thing: Thing, now: Value | None) -> str | None:
        """Why a thing cannot become what the document says; `now`: what there is."""
        value = thing.value
        if isinstance(value, TenantSettings):
            return self._tenant_fault(thing.name, value, now)
        if isinstance(value, UserDefined):
            return self._user_fault(thing.tenant, value)
        if isinstance(value, KeyDefined):
            return self._key_fault(thing, value, now)
        if isinstance(value, dict):
            if self._caller.administers_node:
                return None
            return f"to change limits takes {TAKES_NODE}"
        if isinstance(value, TopicDefined):
            return _topic_fault(thing, value, now) or await self._size_fault(thing, value)
        if isinstance(value, RouterDefined):
            return self._router_fault(thing, value, now)
        if isinstance(value, RouteDefined):
            return await self._route_fault(thing, value)
        return None

    def _tenant_fault(self, name: str, value: TenantSettings, now: Value | None) -> str | None:
        if not self._caller.administers_node:
            return f"to make or change tenants takes {TAKES_NODE}"
        book = self._known.book
        try:
            if now is None:
                book.check_new(name, value.known_as, same_customer=False)
            else:
                book.check_names(name, value.known_as)
        except KernelError as error:
            return error.message
        return None

    def _user_fault(self, tenant: str, value: UserDefined) -> str | None:
        defined = self._document.tenants[tenant].policies
        for name in value.policies:
            is_there = name in BUILT_IN_POLICIES or self._known.store.policy(tenant, name)
            if not is_there and name not in defined:
                return f"there is no policy {name}, here or in the document"
        return None

    def _key_fault(self, thing: Thing, value: KeyDefined, now: Value | None) -> str | None:
        defined = self._document.tenants[thing.tenant].users
        if self._known.store.user(thing.tenant, value.user) is None and value.user not in defined:
            return f"there is no user {value.user}, here or in the document"
        if isinstance(now, KeyDefined) and now.user != value.user:
            return "a key cannot be given to another user: make a new one"
        if now is None:
            if not self._caller.administers_node:
                return f"to choose the id of an access key takes {TAKES_NODE}"
            if self._known.store.access_key(thing.name) is not None:
                return "there is a key of this id in another tenant"
            if not value.sealed_secret:
                return "the document has no secret for it"
        if value.sealed_secret:
            try:
                self._keys.unseal(value.sealed_secret, secret_context(thing.name))
            except AuthError as error:
                return (
                    f"{error.message}: add that line to this server's key file, or leave keys out"
                )
        return None

    async def _size_fault(self, thing: Thing, value: TopicDefined) -> str | None:
        if value.size is None:
            return None
        options = topic_options(value)
        groups = {name: group_options(each) for name, each in value.groups.items()}
        topic = await self._known.topic(thing.tenant, thing.name)
        if topic is None:
            refs = tuple(QueueRef(QueueId(each), RaftGroup(0)) for each in range(options.queues))
            topic = TopicInfo(thing.tenant, thing.name, TopicId(0), 0, options, refs, groups)
        else:
            groups = {**topic.groups, **groups}
            topic = msgspec.structs.replace(topic, options=options, groups=groups)
        try:
            check_size(topic, topic_size(value.size, topic.id))
        except KernelError as error:
            return error.message
        return None

    def _router_fault(self, thing: Thing, value: RouterDefined, now: Value | None) -> str | None:
        wanted = self._predeclared.get(thing.name)
        if now is None and thing.name.startswith(RESERVED_PREFIXES):
            if wanted is None:
                return "a name that begins so is the server's"
            # Written by hand, it says nothing of what clients have declared.
            asked = msgspec.structs.replace(router_options(value), declarations={})
            if asked != msgspec.structs.replace(wanted, declarations={}):
                return "a router of this name has settings of its own, which cannot be others"
            return None
        if isinstance(now, RouterDefined):
            return _fixed_fault(value, now, _FIXED_OF_ROUTERS)
        try:
            check_new_name("router", thing.name)
            definition_checks.check_router(
                PutRouter(thing.tenant, thing.name, router_options(value)), None
            )
        except KernelError as error:
            return error.message
        return None

    async def _route_fault(self, thing: Thing, value: RouteDefined) -> str | None:
        defined = self._document.tenants[thing.tenant]
        for name in filter(None, (thing.source, value.router)):
            if name in defined.routers or name == TOPICS_ROUTER or name in self._predeclared:
                continue
            if await self._known.router(thing.tenant, name) is None:
                return f"there is no router {name}, here or in the document"
        name = value.topic or ""
        is_there = not name or name in defined.topics
        if is_there or await self._known.topic(thing.tenant, name) is not None:
            return None
        return f"there is no topic {name}, here or in the document"


def _put_topic(thing: Thing, value: TopicDefined) -> PutTopic:
    groups = {name: group_options(each) for name, each in value.groups.items()}
    return PutTopic(thing.tenant, thing.name, topic_options(value), groups, reserved_name=True)


def _topic_fault(thing: Thing, value: TopicDefined, now: Value | None) -> str | None:
    if isinstance(now, TopicDefined):
        return _fixed_fault(value, now, _FIXED_OF_TOPICS)
    try:
        check_new_name("topic", thing.name)
        for name in value.groups:
            check_new_name("group", name)
    except KernelError as error:
        return error.message
    return None


def _fixed_fault(
    value: TopicDefined | RouterDefined, now: TopicDefined | RouterDefined, names: tuple[str, ...]
) -> str | None:
    for name in names:
        asked, found = getattr(value, name), getattr(now, name)
        if asked != found:
            asked, found = getattr(asked, "value", asked), getattr(found, "value", found)
            return f"{name} is fixed: it is {found} here, {asked} in the document"
    return None


def _limits_fault(tenant: str, name: str, limits: Mapping[str, int]) -> str | None:
    try:
        entity = entity_of(tenant, name)
    except ValueError:
        words = ", ".join(each.value for each in KINDS if each is not Scope.LISTENER)
        return f"limits of a tenant are of {words}, as user:alice; of none: listener:amqp.tcp"
    known = [each.value for each in KINDS[entity.scope]]
    for kind, limit in limits.items():
        if kind not in known:
            return f"{kind} is no limit of a {entity.scope.value}: those are {', '.join(known)}"
        if not 1 <= limit <= LIMIT_MAX:
            return f"{kind} must be 1 to {LIMIT_MAX}"
    return None
