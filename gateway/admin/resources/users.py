"""Users, access keys and policies over HTTP. Neither a password's hash nor a stored secret is ever
shown; a new key's secret is shown once, in the answer that made it.

    GET /users?prefix=&after=&limit=   POST /users    GET, PATCH, DELETE /users/USER
    GET /keys?user=                    POST /keys     GET, PATCH, DELETE /keys/KEY
    GET /policies                                     GET, PUT, DELETE   /policies/POLICY

Each takes ?tenant=NAME (`tenants`).

Who administers a tenant and not the node makes as many users and policies as one tenant may take
of the room for all (`principals`), and chooses no id of a key. No two keys of any tenants have the
same: one that is taken would tell of somebody else's key, and the development key's would come in
its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from auth.policies.built_in import BUILT_IN_POLICIES, built_in_policy
from auth.users.store import POLICIES_PER_TENANT_MAX, USERS_MAX
from gateway.admin.http.callers import TAKES_NODE, caller_of
from gateway.admin.http.requests import answer, nothing, page_of, path_name, read_body
from gateway.admin.resources.principals import OWN_POLICIES_MAX, OWN_USERS_MAX
from kernel.common.errors import Code, KernelError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from auth.policies.policy_rules import Policy
    from auth.users.records import AccessKey, User
    from gateway.admin.resources.principals import Principals
    from gateway.admin.resources.tenants import KnownTenants


class UserNew(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    password: str | None = None
    policies: list[str] = []
    enabled: bool = True


class UserFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is left out or null stays."""

    password: str | None = None
    policies: list[str] | None = None
    enabled: bool | None = None
    sign_out: bool = False
    """Close the connections that have signed in with its password by now."""


class UserShown(Struct, frozen=True, kw_only=True):
    name: str
    policies: list[str]
    enabled: bool
    has_password: bool
    keys: list[str]
    created_ms: int
    version: int


class UserPage(Struct, frozen=True):
    """`next`: what `after` is for the next page; null at the end."""

    users: list[UserShown]
    next: str | None


class KeyNew(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Id and secret are made by the server unless they are brought along."""

    user: str
    key_id: str | None = None
    secret: str | None = None


class KeyFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    enabled: bool


class KeyShown(Struct, frozen=True, kw_only=True, omit_defaults=True):
    key_id: str
    user: str
    enabled: bool
    created_ms: int
    version: int
    secret: str | None = None
    """Only in the answer that made the key."""


class KeyList(Struct, frozen=True):
    keys: list[KeyShown]


class PolicyRules(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rules as `auth.policies.policy_rules` reads them, such as `allow publish topic:orders-*`."""

    rules: list[str]


class PolicyShown(Struct, frozen=True, kw_only=True):
    name: str
    rules: list[str]
    is_built_in: bool
    version: int


class PolicyList(Struct, frozen=True):
    policies: list[PolicyShown]


class PrincipalRoutes:
    """Handlers of users, keys and policies."""

    def __init__(self, principals: Principals, tenants: KnownTenants) -> None:
        self._principals = principals
        self._tenants = tenants
        self._store = principals.store

    # --- Users ------------------------------------------------------------------------------

    async def list_users(self, request: Request) -> Response:
        """Users by name. The development login is not one: it is in no store."""
        prefix, after, limit = page_of(request)
        found = [
            user
            for user in self._store.users(self._tenants.of(request))
            if user.name > after and user.name.startswith(prefix)
        ]
        rows = [self._user(user) for user in found[:limit]]
        return answer(UserPage(rows, rows[-1].name if len(found) > limit else None))

    async def create_user(self, request: Request) -> Response:
        """A new user; 409 if there is one of that name."""
        tenant = self._tenants.of(request)
        asked = await read_body(request, UserNew)
        user = await self._principals.create_user(
            tenant,
            asked.name,
            password=asked.password,
            policies=asked.policies,
            enabled=asked.enabled,
            most=USERS_MAX if caller_of(request).administers_node else OWN_USERS_MAX,
        )
        return answer(self._user(user), 201)

    async def show_user(self, request: Request) -> Response:
        """One user."""
        tenant = self._tenants.of(request)
        return answer(self._user(self._principals.user(tenant, path_name(request, "user"))))

    async def change_user(self, request: Request) -> Response:
        """Change what is given."""
        tenant = self._tenants.of(request)
        asked = await read_body(request, UserFields)
        user = await self._principals.alter_user(
            tenant,
            path_name(request, "user"),
            password=asked.password,
            policies=asked.policies,
            enabled=asked.enabled,
            sign_out=asked.sign_out,
        )
        return answer(self._user(user))

    async def delete_user(self, request: Request) -> Response:
        """Remove a user and its keys."""
        tenant = self._tenants.of(request)
        await self._principals.remove_user(tenant, path_name(request, "user"))
        return nothing()

    def _user(self, user: User) -> UserShown:
        keys = self._store.access_keys_of(user.tenant, user.name)
        return UserShown(
            name=user.name,
            policies=list(user.policies),
            enabled=user.enabled,
            has_password=bool(user.password_hash),
            keys=[key.key_id for key in keys],
            created_ms=user.created_ms,
            version=user.version,
        )

    # --- Access keys ------------------------------------------------------------------------

    async def list_keys(self, request: Request) -> Response:
        """Keys of one user, or of all."""
        tenant = self._tenants.of(request)
        name = request.query_params.get("user")
        principals, store = self._principals, self._store
        users = store.users(tenant) if name is None else [principals.user(tenant, name)]
        keys = (key for user in users for key in store.access_keys_of(user.tenant, user.name))
        return answer(KeyList([_key(key) for key in keys]))

    async def create_key(self, request: Request) -> Response:
        """A new key of a user."""
        tenant = self._tenants.of(request)
        asked = await read_body(request, KeyNew)
        if asked.key_id is not None and not caller_of(request).administers_node:
            message = f"to choose the id of an access key takes {TAKES_NODE}: leave out key_id"
            raise KernelError(Code.NOT_ALLOWED, message)
        new = await self._principals.create_key(
            tenant, asked.user, key_id=asked.key_id, secret=asked.secret
        )
        return answer(_key(new.key, new.secret), 201)

    async def show_key(self, request: Request) -> Response:
        """One key, without its secret."""
        tenant = self._tenants.of(request)
        return answer(_key(self._principals.key(tenant, path_name(request, "key"))))

    async def change_key(self, request: Request) -> Response:
        """Enable or disable a key."""
        tenant = self._tenants.of(request)
        asked = await read_body(request, KeyFields)
        key_id = path_name(request, "key")
        key = await self._principals.alter_key(tenant, key_id, enabled=asked.enabled)
        return answer(_key(key))

    async def delete_key(self, request: Request) -> Response:
        """Remove a key."""
        tenant = self._tenants.of(request)
        await self._principals.remove_key(tenant, path_name(request, "key"))
        return nothing()

    # --- Policies ---------------------------------------------------------------------------

    async def list_policies(self, request: Request) -> Response:
        """Policies by name, the built-in ones first."""
        tenant = self._tenants.of(request)
        built_in = [
            policy
            for name in sorted(BUILT_IN_POLICIES)
            if (policy := built_in_policy(tenant, name)) is not None
        ]
        stored = self._store.policies(tenant)
        return answer(PolicyList([_policy(policy) for policy in (*built_in, *stored)]))

    async def show_policy(self, request: Request) -> Response:
        """One policy, stored or built in."""
        tenant = self._tenants.of(request)
        name = path_name(request, "policy")
        built_in = built_in_policy(tenant, name)
        return answer(_policy(built_in or self._principals.policy(tenant, name)))

    async def put_policy(self, request: Request) -> Response:
        """Create a policy or replace its rules."""
        tenant = self._tenants.of(request)
        asked = await read_body(request, PolicyRules)
        name = path_name(request, "policy")
        is_node = caller_of(request).administers_node
        most = POLICIES_PER_TENANT_MAX if is_node else OWN_POLICIES_MAX
        policy, is_new = await self._principals.put_policy(tenant, name, asked.rules, most)
        return answer(_policy(policy), 201 if is_new else 200)

    async def delete_policy(self, request: Request) -> Response:
        """Remove a policy that no user holds."""
        tenant = self._tenants.of(request)
        await self._principals.remove_policy(tenant, path_name(request, "policy"))
        return nothing()


def _key(key: AccessKey, secret: str | None = None) -> KeyShown:
    return KeyShown(
        key_id=key.key_id,
        user=key.user,
        enabled=key.enabled,
        created_ms=key.created_ms,
        version=key.version,
        secret=secret,
    )


def _policy(policy: Policy) -> PolicyShown:
    return PolicyShown(
        name=policy.name,
        rules=[str(rule) for rule in policy.rules],
        is_built_in=policy.name in BUILT_IN_POLICIES,
        version=policy.version,
    )
