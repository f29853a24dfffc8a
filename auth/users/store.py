"""The user store: users, access keys and policies as plain state.

Rules:
- `apply` is deterministic, never raises and never waits: the metadata group calls it for every
  change of its log, in order, on every node. What it refuses, it refuses on all of them.
- The store never touches a disk. It takes changes (`records.Change`) and gives records
  (`records`), which `restore` takes back.
- `generation` rises whenever someone's rights may have changed. Whoever caches a decision
  compares it (auth.policies.policy_decisions), so that a removed right ends with the next message,
  and everyone who is connected is looked at anew (gateway.access.rights_watch). So it does not
  rise for what nobody has yet: a new user, key or policy. A fleet that is being set up disturbs
  nobody.

Not thread-safe: it belongs to the event loop.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from ..errors import AuthCode, AuthError
from ..policies.built_in import BUILT_IN_POLICIES
from ..policies.policy_rules import Policy
from .records import (
    AccessKey,
    Alter,
    Change,
    Create,
    Record,
    RemoveAccessKey,
    RemoveUser,
    User,
    record_fault,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

USERS_MAX = 500_000
"""A user for each of hundreds of thousands of devices; about 0.6 KB of memory each."""

ACCESS_KEYS_PER_USER_MAX = 8
"""Two are needed to change a key without a gap; the rest is room for several programs."""

POLICIES_PER_TENANT_MAX = 1_000
"""More policies than people can keep apart; placeholders make one a device needless."""


class AuthStore:
    """All users, access keys and policies of all tenants."""

    def __init__(self) -> None:
        self.generation = 0
        self._users: dict[tuple[str, str], User] = {}
        self._keys: dict[str, AccessKey] = {}
        self._policies: dict[tuple[str, str], Policy] = {}
        self._keys_of_user: dict[tuple[str, str], set[str]] = {}
        self._users_of_tenant: Counter[str] = Counter()
        self._policies_of_tenant: Counter[str] = Counter()
        self._uses_of_policy: Counter[tuple[str, str]] = Counter()

    # ------------------------------------------------------------------ reading

    def user(self, tenant: str, name: str) -> User | None:
        return self._users.get((tenant, name))

    def access_key(self, key_id: str) -> AccessKey | None:
        return self._keys.get(key_id)

    def policy(self, tenant: str, name: str) -> Policy | None:
        return self._policies.get((tenant, name))

    def user_count(self) -> int:
        return len(self._users)

    def users_by_tenant(self) -> dict[str, int]:
        """How many users each tenant has that has any."""
        return dict(self._users_of_tenant)

    def has_users(self, tenant: str) -> bool:
        """Whether any user belongs to a tenant."""
        return tenant in self._users_of_tenant

    def users(self, tenant: str) -> list[User]:
        """Users of a tenant by name. Walks the whole store: for listings only."""
        found = (user for user in self._users.values() if user.tenant == tenant)
        return sorted(found, key=lambda user: user.name)

    def access_keys_of(self, tenant: str, user: str) -> list[AccessKey]:
        """Access keys of a user by id."""
        return [self._keys[key_id] for key_id in sorted(self._keys_of_user.get((tenant, user), ()))]

    def policies(self, tenant: str) -> list[Policy]:
        """Policies of a tenant by name, without the built-in ones."""
        found = (policy for policy in self._policies.values() if policy.tenant == tenant)
        return sorted(found, key=lambda policy: policy.name)

    # ------------------------------------------------------------------ changing

    def apply(self, change: Change) -> AuthError | None:
        """Carries out one change, or returns why not (nothing is changed then).

        Codes: INVALID_ARGUMENT, ALREADY_EXISTS, NOT_FOUND, CONFLICT, IN_USE, LIMIT_EXCEEDED.
        """
        if isinstance(change, Create):
            return self._put(change.record, is_new=True)
        if isinstance(change, Alter):
            return self._put(change.record, is_new=False)
        if isinstance(change, RemoveUser):
            return self._remove_user(change.tenant, change.name)
        if isinstance(change, RemoveAccessKey):
            return self._remove_access_key(change.key_id)
        return self._remove_policy(change.tenant, change.name)

    def _put(self, record: Record, *, is_new: bool) -> AuthError | None:
        fault = record_fault(record)
        if fault is not None:
            return AuthError(AuthCode.INVALID_ARGUMENT, fault)
        old = self._find(record)
        refusal = _version_refusal(record, old, is_new=is_new)
        if refusal is not None:
            return refusal
        version = 1 if old is None else old.version + 1
        return self.follow(msgspec.structs.replace(record, version=version))

    def follow(self, record: Record) -> AuthError | None:
        """Takes over a record as it is kept elsewhere, new or changed, with its version there; or
        returns why not.

        Codes: INVALID_ARGUMENT, NOT_FOUND, LIMIT_EXCEEDED.
        """
        fault = record_fault(record)
        if fault is not None:
            return AuthError(AuthCode.INVALID_ARGUMENT, fault)
        old = self._find(record)
        refusal = self._reference_refusal(record, old) or self._limit_refusal(record, old)
        if refusal is None:
            self._insert(record, old)
        return refusal

    def _find(self, record: Record) -> Record | None:
        if isinstance(record, User):
            return self._users.get((record.tenant, record.name))
        if isinstance(record, AccessKey):
            return self._keys.get(record.key_id)
        return self._policies.get((record.tenant, record.name))

    def _reference_refusal(self, record: Record, old: Record | None) -> AuthError | None:
        """Refuses a record that names a user or policy that does not exist."""
        if isinstance(record, Policy):
            if record.name in BUILT_IN_POLICIES:
                message = f"the policy {record.name} is built in and cannot be changed"
                return AuthError(AuthCode.INVALID_ARGUMENT, message)
            return None
        if isinstance(record, AccessKey):
            owner = (record.tenant, record.user)
            if isinstance(old, AccessKey) and (old.tenant, old.user) != owner:
                message = "an access key cannot be given to another user: make a new one"
                return AuthError(AuthCode.INVALID_ARGUMENT, message)
            if owner not in self._users:
                return _not_found("user", record.tenant, record.user)
            return None
        for name in record.policies:
            if name not in BUILT_IN_POLICIES and (record.tenant, name) not in self._policies:
                return _not_found("policy", record.tenant, name)
        return None

    def _limit_refusal(self, record: Record, old: Record | None) -> AuthError | None:
        if old is not None:
            return None
        if isinstance(record, User):
            if len(self._users) >= USERS_MAX:
                return _limit(f"{USERS_MAX} users")
        elif isinstance(record, AccessKey):
            keys = self._keys_of_user.get((record.tenant, record.user), ())
            if len(keys) >= ACCESS_KEYS_PER_USER_MAX:
                return _limit(f"{ACCESS_KEYS_PER_USER_MAX} access keys a user")
        elif self._policies_of_tenant[record.tenant] >= POLICIES_PER_TENANT_MAX:
            return _limit(f"{POLICIES_PER_TENANT_MAX} policies a tenant")
        return None

    def _insert(self, record: Record, old: Record | None) -> None:
        """Puts a record in its table and its cross-references; all checks are behind us."""
        if isinstance(record, User):
            before = old if isinstance(old, User) else None
            self._users[record.tenant, record.name] = record
            self._count_uses(before, -1)
            self._count_uses(record, 1)
            if before is None:
                self._users_of_tenant[record.tenant] += 1
            if before is not None and _rights(before) != _rights(record):
                self.generation += 1
        elif isinstance(record, AccessKey):
            self._keys[record.key_id] = record
            self._keys_of_user.setdefault((record.tenant, record.user), set()).add(record.key_id)
            if old is not None:
                # What was signed with it may be waiting still.
                self.generation += 1
        else:
            self._policies[record.tenant, record.name] = record
            if old is None:
                self._policies_of_tenant[record.tenant] += 1
            else:
                self.generation += 1

    def _count_uses(self, user: User | None, step: int) -> None:
        if user is None:
            return
        for name in user.policies:
            self._uses_of_policy[user.tenant, name] += step
            if not self._uses_of_policy[user.tenant, name]:
                del self._uses_of_policy[user.tenant, name]

    def _remove_user(self, tenant: str, name: str) -> AuthError | None:
        user = self._users.pop((tenant, name), None)
        if user is None:
            return _not_found("user", tenant, name)
        self._count_uses(user, -1)
        self._users_of_tenant[tenant] -= 1
        if not self._users_of_tenant[tenant]:
            del self._users_of_tenant[tenant]
        for key_id in self._keys_of_user.pop((tenant, name), ()):
            del self._keys[key_id]
        self.generation += 1
        return None

    def _remove_access_key(self, key_id: str) -> AuthError | None:
        key = self._keys.pop(key_id, None)
        if key is None:
            return AuthError(AuthCode.NOT_FOUND, f"there is no access key {key_id}")
        owner = (key.tenant, key.user)
        self._keys_of_user[owner].discard(key_id)
        if not self._keys_of_user[owner]:
            del self._keys_of_user[owner]
        self.generation += 1
        return None

    def _remove_policy(self, tenant: str, name: str) -> AuthError | None:
        if (tenant, name) not in self._policies:
            return _not_found("policy", tenant, name)
        uses = self._uses_of_policy[tenant, name]
        if uses:
            message = f"the policy {name} of tenant {tenant} is held by {uses} users"
            return AuthError(AuthCode.IN_USE, message)
        del self._policies[tenant, name]
        self._policies_of_tenant[tenant] -= 1
        self.generation += 1
        return None

    # ------------------------------------------------------------------ all of them

    def records(self) -> Iterator[Record]:
        """All records in the one order that `restore` takes: policies, users, keys, by name.

        Equal stores give equal sequences. Do not change the store while iterating.
        """
        yield from (self._policies[name] for name in sorted(self._policies))
        yield from (self._users[name] for name in sorted(self._users))
        yield from (self._keys[key_id] for key_id in sorted(self._keys))

    def restore(self, records: Iterable[Record]) -> None:
        """Replaces the whole state by records, versions as they are.

        Raises AuthError DAMAGED, leaving the state as it was, if they are no store's records:
        out of order of reference, twice, or invalid.
        """
        fresh = AuthStore()
        for record in records:
            old = fresh._find(record)
            refusal = fresh._reference_refusal(record, None) or fresh._limit_refusal(record, None)
            fault = record_fault(record) or (refusal.message if refusal is not None else None)
            if fault is not None or old is not None or record.version < 1:
                reason = fault or "a record twice, or without a version"
                raise AuthError(AuthCode.DAMAGED, f"not the records of a user store: {reason}")
            fresh._insert(record, None)
        generation = self.generation
        self.__dict__.update(fresh.__dict__)
        self.generation = generation + 1


def _rights(user: User) -> tuple[tuple[str, ...], bool, int]:
    return user.policies, user.enabled, user.sign_out


def _version_refusal(record: Record, old: Record | None, *, is_new: bool) -> AuthError | None:
    label = record.key_id if isinstance(record, AccessKey) else record.name
    if is_new:
        if old is None:
            return None
        return AuthError(AuthCode.ALREADY_EXISTS, f"{label} exists already")
    if old is None:
        return AuthError(AuthCode.NOT_FOUND, f"there is no {label} to alter")
    if old.version != record.version:
        message = f"{label} was altered meanwhile: read it again, then alter it"
        return AuthError(AuthCode.CONFLICT, message)
    return None


def _not_found(what: str, tenant: str, name: str) -> AuthError:
    return AuthError(AuthCode.NOT_FOUND, f"there is no {what} {name} in tenant {tenant}")


def _limit(what: str) -> AuthError:
    return AuthError(AuthCode.LIMIT_EXCEEDED, f"the limit of {what} is reached")
