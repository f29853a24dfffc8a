"""The records of the user store and the changes to them.

Records are values: they stand in the state of the metadata group, in its snapshot and in its log.
Every record carries a `version` that the store raises by one with each change; altering names the
version that was read, so that two administrators never overwrite each other unseen.
"""

from __future__ import annotations

import re

import argon2
import msgspec

from ..password_checks.salted_hashes import is_salted, salted_fault
from ..policies.policy_rules import Policy, rule_fault
from ..principal import name_fault

POLICIES_PER_USER_MAX = 8
RULES_PER_POLICY_MAX = 64
"""With 16 resources a rule, 8,192 patterns are the most that one uncached decision looks at."""

NOTE_BYTES_MAX = 4096
"""Three long expressions of permissions, and those of some exchanges."""

SEALED_SECRET_BYTES_MAX = 1024
"""A secret of 40 bytes seals to 73; the rest is room for later envelopes."""

MEMORY_COST_KIB_MAX = 262_144
TIME_COST_MAX = 16
LANES_MAX = 8
"""Bounds on foreign argon2 hashes: a hash is a program that the server runs at every login."""

_KEY_ID = re.compile(r"[A-Za-z0-9_-]{1,128}", re.ASCII)


class User(msgspec.Struct, frozen=True, kw_only=True, tag="user"):
    """Someone who may sign in, with a password, with access keys, or both."""

    tenant: str
    name: str
    password_hash: str = ""
    """argon2id in PHC form, or one of RabbitMQ's (`auth.password_checks.salted_hashes`); empty: no
    password signs this user in."""
    policies: tuple[str, ...] = ()
    enabled: bool = True
    created_ms: int = 0
    version: int = 0
    sign_out: int = 0
    """Raised to sign out whoever has signed in with a password by then."""


class AccessKey(msgspec.Struct, frozen=True, kw_only=True, tag="access_key"):
    """A key id and a secret that sign requests in the name of a user of the store."""

    key_id: str
    """Unique over all tenants: a signed request names no tenant, only the key."""
    tenant: str
    user: str
    sealed_secret: bytes
    enabled: bool = True
    created_ms: int = 0
    version: int = 0

    def signs_as(self, other: AccessKey) -> bool:
        """Whether another record is the same signer, whatever else was altered."""
        mine = (self.key_id, self.tenant, self.user, self.sealed_secret)
        return mine == (other.key_id, other.tenant, other.user, other.sealed_secret)


Record = User | AccessKey | Policy


class Create(msgspec.Struct, frozen=True, tag="create"):
    """Adds a record that does not exist yet. Its `version` is ignored."""

    record: Record


class Alter(msgspec.Struct, frozen=True, tag="alter"):
    """Replaces the record of the same name, which must still have the `version` given."""

    record: Record


class RemoveUser(msgspec.Struct, frozen=True, tag="remove_user"):
    """Removes a user and its access keys."""

    tenant: str
    name: str


class RemoveAccessKey(msgspec.Struct, frozen=True, tag="remove_access_key"):
    """Removes one access key."""

    key_id: str


class RemovePolicy(msgspec.Struct, frozen=True, tag="remove_policy"):
    """Removes a policy that no user refers to."""

    tenant: str
    name: str


Change = Create | Alter | RemoveUser | RemoveAccessKey | RemovePolicy


def record_fault(record: Record) -> str | None:
    """Why a record can never be stored, whatever else is in the store; None if it can."""
    if isinstance(record, User):
        return _user_fault(record)
    if isinstance(record, AccessKey):
        return _access_key_fault(record)
    return _policy_fault(record)


def _user_fault(user: User) -> str | None:
    fault = name_fault("tenant", user.tenant) or name_fault("user", user.name)
    if fault is not None:
        return fault
    if len(user.policies) > POLICIES_PER_USER_MAX:
        return f"a user has at most {POLICIES_PER_USER_MAX} policies"
    if len(set(user.policies)) != len(user.policies):
        return "a policy is named twice"
    return password_hash_fault(user.password_hash) if user.password_hash else None


def _access_key_fault(key: AccessKey) -> str | None:
    if _KEY_ID.fullmatch(key.key_id) is None:
        return "an access key id is 1 to 128 characters of A-Z a-z 0-9 _ -"
    if not 0 < len(key.sealed_secret) <= SEALED_SECRET_BYTES_MAX:
        return f"a sealed secret has 1 to {SEALED_SECRET_BYTES_MAX} bytes"
    return name_fault("tenant", key.tenant) or name_fault("user", key.user)


def _policy_fault(policy: Policy) -> str | None:
    fault = name_fault("tenant", policy.tenant) or name_fault("policy", policy.name)
    if fault is not None:
        return fault
    if not policy.rules:
        return "a policy without rules: remove it instead"
    if len(policy.rules) > RULES_PER_POLICY_MAX:
        return f"a policy has at most {RULES_PER_POLICY_MAX} rules"
    if len(policy.note.encode("utf-8", "surrogatepass")) > NOTE_BYTES_MAX:
        return f"the note of a policy has at most {NOTE_BYTES_MAX} bytes"
    for number, rule in enumerate(policy.rules, start=1):
        fault = rule_fault(rule)
        if fault is not None:
            return f"rule {number}: {fault}"
    return None


def password_hash_fault(password_hash: str) -> str | None:
    """Why a string is no hash of a password that this server would run, or None if it is one."""
    if is_salted(password_hash):
        return salted_fault(password_hash)
    try:
        cost = argon2.extract_parameters(password_hash)
    except (argon2.exceptions.InvalidHashError, ValueError):
        return "a password hash is argon2id in PHC form ($argon2id$v=19$...), or one of RabbitMQ's"
    if cost.type is not argon2.Type.ID:
        return "only the argon2id kind of argon2 is accepted"
    if (
        not 8 * cost.parallelism <= cost.memory_cost <= MEMORY_COST_KIB_MAX
        or not 1 <= cost.time_cost <= TIME_COST_MAX
        or not 1 <= cost.parallelism <= LANES_MAX
    ):
        return (
            f"argon2 costs are bounded: m at most {MEMORY_COST_KIB_MAX} KiB, "
            f"t at most {TIME_COST_MAX}, p at most {LANES_MAX}"
        )
    return None
