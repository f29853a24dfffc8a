"""Changes of users, access keys and policies: checked by the rules of `auth`, stored by the kernel.

A change is rehearsed on a small store that holds just the records it touches, so that the rules
stand in `auth.users.store` alone; then it becomes one metadata record, written only if that record
still has the version it was checked against. One change at a time: nothing that a check relied on
goes before the record is written.
"""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import msgspec

from auth.errors import AuthCode, AuthError
from auth.password_checks.passwords import hash_password
from auth.policies.policy_rules import Policy, parse_rule
from auth.users.development import ADMIN_PASSWORD_VARIABLE, first_administrator
from auth.users.directory import secret_context
from auth.users.records import AccessKey, Alter, Create, Record, User
from auth.users.store import POLICIES_PER_TENANT_MAX, USERS_MAX, AuthStore
from gateway.access.identity import encode_record, key_of
from gateway.admin.resources.tenants import of_tenant
from kernel.api.client import PutRecord
from kernel.common.errors import Code, KernelError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from auth.private_files.sealed import KeyRing
    from kernel.api.client import Client
    from kernel.common.ports import Clock, Random

KEY_ID_BITS = 80
"""16 characters of base32: no two keys ever get the same id by chance."""

SECRET_BITS = 240
"""40 characters, as long as an AWS secret, which some programs insist on."""

OWN_USERS_MAX = 50_000
"""Users that a tenant's own administrator lets it have: a tenth of what there is room for, so that
one tenant cannot take all. Who administers the node may give it more.
"""

OWN_POLICIES_MAX = 100
"""Likewise policies: 50 MB of the memory of every process, if each is the largest there can be."""

_R = TypeVar("_R", User, AccessKey, Policy)


@dataclass(frozen=True, slots=True)
class NewKey:
    """An access key just made. The secret is shown this once."""

    key: AccessKey
    secret: str


class Principals:
    """Users, access keys and policies of all tenants."""

    def __init__(
        self, client: Client, store: AuthStore, keys: KeyRing, clock: Clock, random: Random
    ) -> None:
        self.store = store
        self._client = client
        self.keys = keys
        self._clock = clock
        self._random = random
        self._lock = asyncio.Lock()

    # --- Users ------------------------------------------------------------------------------

    def user(self, tenant: str, name: str) -> User:
        """A user. Raises AuthError NOT_FOUND."""
        user = self.store.user(tenant, name)
        if user is None:
            raise AuthError(AuthCode.NOT_FOUND, f"there is no user {name}{of_tenant(tenant)}")
        return user

    async def create_user(
        self,
        tenant: str,
        name: str,
        *,
        password: str | None,
        policies: Sequence[str],
        enabled: bool = True,
        most: int = USERS_MAX,
    ) -> User:
        """A new user, of `most` in its tenant; without a password only access keys sign it in.

        Raises AuthError INVALID_ARGUMENT, ALREADY_EXISTS, NOT_FOUND (a policy), LIMIT_EXCEEDED.
        """
        user = User(
            tenant=tenant,
            name=name,
            password_hash=await _hashed(password),
            policies=tuple(policies),
            enabled=enabled,
            created_ms=self._clock.wall_ms(),
        )
        async with self._lock:
            self._check_users(tenant, most)
            return await self._create(user)

    async def alter_user(
        self,
        tenant: str,
        name: str,
        *,
        password: str | None = None,
        policies: Sequence[str] | None = None,
        enabled: bool | None = None,
        sign_out: bool = False,
    ) -> User:
        """Change what is given; `sign_out`: who has signed in with its password by now is sent
        away, from every gateway. Raises AuthError INVALID_ARGUMENT, NOT_FOUND.
        """
        self.user(tenant, name)
        hashed = await _hashed(password)
        async with self._lock:
            user = self.user(tenant, name)
            return await self._alter(
                msgspec.structs.replace(
                    user,
                    password_hash=hashed or user.password_hash,
                    policies=user.policies if policies is None else tuple(policies),
                    enabled=user.enabled if enabled is None else enabled,
                    sign_out=user.sign_out + sign_out,
                )
            )

    async def put_user(
        self,
        tenant: str,
        name: str,
        *,
        password_hash: str,
        policies: Sequence[str],
        enabled: bool,
        most: int = USERS_MAX,
    ) -> User:
        """A user, new or changed, whose password was hashed before; without a hash the one that is
        there keeps its own. Raises as `create_user` does.
        """
        async with self._lock:
            user = self.store.user(tenant, name)
            if user is None:
                self._check_users(tenant, most)
                user = User(tenant=tenant, name=name, created_ms=self._clock.wall_ms())
            wanted = msgspec.structs.replace(
                user,
                password_hash=password_hash or user.password_hash,
                policies=tuple(policies),
                enabled=enabled,
            )
            return await (self._alter(wanted) if user.version else self._create(wanted))

    async def remove_user(self, tenant: str, name: str) -> None:
        """Remove a user and its access keys. Raises AuthError NOT_FOUND."""
        async with self._lock:
            user = self.user(tenant, name)
            # The keys first: a crash in between leaves a user without keys, never keys without one.
            for key in self.store.access_keys_of(user.tenant, user.name):
                await self._remove(key)
            await self._remove(user)

    async def first_administrator(self, environment: Mapping[str, str]) -> User | None:
        """The user `admin` with the password of WEIR_ADMIN_PASSWORD, if that is set and there is
        no user at all; None otherwise.
        """
        password = environment.get(ADMIN_PASSWORD_VARIABLE, "")
        if not password or self.store.user_count():
            return None
        hashed = await _hashed(password)
        async with self._lock:
            return await self._create(first_administrator(hashed, self._clock.wall_ms()))

    # --- Access keys ------------------------------------------------------------------------

    def key(self, tenant: str, key_id: str) -> AccessKey:
        """An access key of a tenant's user. Raises AuthError NOT_FOUND, for somebody else's too."""
        key = self.store.access_key(key_id)
        if key is None or key.tenant != tenant:
            message = f"there is no access key {key_id}{of_tenant(tenant)}"
            raise AuthError(AuthCode.NOT_FOUND, message)
        return key

    async def create_key(
        self, tenant: str, user: str, *, key_id: str | None = None, secret: str | None = None
    ) -> NewKey:
        """An access key of a user; id and secret may be brought along from elsewhere.

        Raises AuthError NOT_FOUND (the user), ALREADY_EXISTS, INVALID_ARGUMENT, LIMIT_EXCEEDED.
        """
        key_id = key_id or f"WEIR{base64.b32encode(self._bytes(KEY_ID_BITS)).decode()}"
        secret = secret or base64.urlsafe_b64encode(self._bytes(SECRET_BITS)).decode()
        key = AccessKey(
            key_id=key_id,
            tenant=tenant,
            user=user,
            sealed_secret=self.keys.seal(secret.encode(), secret_context(key_id)),
            created_ms=self._clock.wall_ms(),
        )
        async with self._lock:
            self.user(tenant, user)
            return NewKey(await self._create(key), secret)

    async def put_key(
        self, tenant: str, key_id: str, *, user: str, sealed_secret: bytes, enabled: bool
    ) -> AccessKey:
        """A key, new or changed, whose secret was sealed before; without one the key that is there
        keeps its own. Raises as `create_key` does, and AuthError DAMAGED if it does not open.
        """
        if sealed_secret:
            self.keys.unseal(sealed_secret, secret_context(key_id))
        async with self._lock:
            key = self.store.access_key(key_id)
            if key is None or key.tenant != tenant:
                key = AccessKey(
                    key_id=key_id,
                    tenant=tenant,
                    user=user,
                    sealed_secret=sealed_secret,
                    created_ms=self._clock.wall_ms(),
                )
            wanted = msgspec.structs.replace(
                key, sealed_secret=sealed_secret or key.sealed_secret, enabled=enabled
            )
            return await (self._alter(wanted) if key.version else self._create(wanted))

    async def alter_key(self, tenant: str, key_id: str, *, enabled: bool) -> AccessKey:
        """Enable or disable a key. Raises AuthError NOT_FOUND."""
        async with self._lock:
            key = self.key(tenant, key_id)
            return await self._alter(msgspec.structs.replace(key, enabled=enabled))

    async def remove_key(self, tenant: str, key_id: str) -> None:
        """Remove a key. Raises AuthError NOT_FOUND."""
        async with self._lock:
            await self._remove(self.key(tenant, key_id))

    # --- Policies ---------------------------------------------------------------------------

    def policy(self, tenant: str, name: str) -> Policy:
        """A stored policy. Raises AuthError NOT_FOUND."""
        policy = self.store.policy(tenant, name)
        if policy is None:
            raise AuthError(AuthCode.NOT_FOUND, f"there is no policy {name}{of_tenant(tenant)}")
        return policy

    async def put_policy(
        self,
        tenant: str,
        name: str,
        rules: Sequence[str],
        most: int = POLICIES_PER_TENANT_MAX,
        note: str = "",
    ) -> tuple[Policy, bool]:
        """Create a policy, of `most` in its tenant, or replace its rules; it, and whether it
        is new. Raises AuthError INVALID_ARGUMENT (also for a built-in policy's name),
        LIMIT_EXCEEDED.
        """
        parsed = tuple(parse_rule(rule) for rule in rules)
        policy = Policy(tenant=tenant, name=name, rules=parsed, note=note)
        async with self._lock:
            known = self.store.policy(tenant, name)
            if known is None:
                self._check_policies(tenant, most)
                return await self._create(policy), True
            altered = msgspec.structs.replace(policy, version=known.version)
            return await self._alter(altered), False

    async def remove_policy(self, tenant: str, name: str) -> None:
        """Remove a policy. Raises AuthError NOT_FOUND, IN_USE (users hold it)."""
        async with self._lock:
            policy = self.policy(tenant, name)
            holders = [u.name for u in self.store.users(policy.tenant) if name in u.policies]
            if holders:
                shown = ", ".join(holders[:3]) + (", ..." if len(holders) > 3 else "")
                raise AuthError(AuthCode.IN_USE, f"the policy {name} is held by {shown}")
            await self._remove(policy)

    # --- Writing ----------------------------------------------------------------------------

    async def _create(self, record: _R) -> _R:
        self._rehearse(Create(record))
        return await self._put(record, expected=0)

    async def _alter(self, record: _R) -> _R:
        self._rehearse(Alter(record))
        return await self._put(record, expected=record.version)

    async def _put(self, record: _R, *, expected: int) -> _R:
        change = PutRecord(key_of(record), encode_record(record), expected)
        try:
            version = await self._client.administer(change)
        except KernelError as error:
            raise _conflict(error) from error
        assert isinstance(version, int)
        return msgspec.structs.replace(record, version=version)

    async def _remove(self, record: Record) -> None:
        try:
            await self._client.administer(PutRecord(key_of(record), None, record.version))
        except KernelError as error:
            raise _conflict(error) from error

    def _rehearse(self, change: Create | Alter) -> None:
        """Raise what the store would answer to a change."""
        record = change.record
        if isinstance(change, Create):
            self._check_room(record)
        scratch = AuthStore()
        scratch.restore(self._around(record))
        refusal = scratch.apply(change)
        if refusal is not None:
            raise refusal

    def _check_room(self, record: Record) -> None:
        """The limits that count over the whole store, which no rehearsal sees."""
        if isinstance(record, User) and self.store.user_count() >= USERS_MAX:
            raise AuthError(AuthCode.LIMIT_EXCEEDED, f"the limit of {USERS_MAX} users is reached")
        if isinstance(record, Policy):
            self._check_policies(record.tenant, POLICIES_PER_TENANT_MAX)
        elif isinstance(record, AccessKey) and self.store.access_key(record.key_id) is not None:
            raise AuthError(AuthCode.ALREADY_EXISTS, f"{record.key_id} exists already")

    def _check_users(self, tenant: str, most: int) -> None:
        """Raise AuthError LIMIT_EXCEEDED unless a tenant may have one more."""
        if self.store.users_by_tenant().get(tenant, 0) >= most:
            message = f"the limit of {most} users{of_tenant(tenant)} is reached"
            raise AuthError(AuthCode.LIMIT_EXCEEDED, message)

    def _check_policies(self, tenant: str, most: int) -> None:
        """Raise AuthError LIMIT_EXCEEDED unless a tenant may have one more."""
        if len(self.store.policies(tenant)) >= most:
            message = f"the limit of {most} policies{of_tenant(tenant)} is reached"
            raise AuthError(AuthCode.LIMIT_EXCEEDED, message)

    def _around(self, record: Record) -> list[Record]:
        """The records that a change of `record` refers to, in the order that `restore` takes."""
        if isinstance(record, Policy):
            known = self.store.policy(record.tenant, record.name)
            return [] if known is None else [known]
        name = record.user if isinstance(record, AccessKey) else record.name
        user = self.store.user(record.tenant, name)
        held = user.policies if user is not None else ()
        asked = record.policies if isinstance(record, User) else ()
        policies = (self.store.policy(record.tenant, each) for each in dict.fromkeys(held + asked))
        around: list[Record] = [policy for policy in policies if policy is not None]
        if user is not None:
            around.append(user)
            if isinstance(record, AccessKey):
                around += self.store.access_keys_of(record.tenant, name)
        return around

    def _bytes(self, bits: int) -> bytes:
        return self._random.bits(bits).to_bytes(bits // 8, "big")


async def _hashed(password: str | None) -> str:
    """A password's hash, made beside the event loop; empty for none."""
    if password is None:
        return ""
    return await asyncio.to_thread(hash_password, password.encode())


def _conflict(error: KernelError) -> AuthError | KernelError:
    """A record that another node has changed since it was read is a conflict of `auth`."""
    if error.code is not Code.ALREADY_EXISTS:
        return error
    message = "the record was altered by someone else meanwhile: try again"
    return AuthError(AuthCode.CONFLICT, message)
