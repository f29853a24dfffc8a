"""Makers of small stores for the tests of auth/."""

from __future__ import annotations

import msgspec

from auth.policies.policy_rules import Policy, parse_rule
from auth.private_files.sealed import KeyRing
from auth.users.directory import Directory, secret_context
from auth.users.records import AccessKey, Alter, Change, Create, User
from auth.users.store import AuthStore

RING = KeyRing({1: bytes(range(32))})


def policy(name: str, *rules: str, tenant: str = "default") -> Policy:
    return Policy(tenant=tenant, name=name, rules=tuple(parse_rule(rule) for rule in rules))


def user(
    name: str,
    *policies: str,
    tenant: str = "default",
    password_hash: str = "",
    enabled: bool = True,
    version: int = 0,
) -> User:
    return User(
        tenant=tenant,
        name=name,
        policies=policies,
        password_hash=password_hash,
        enabled=enabled,
        version=version,
    )


def access_key(
    key_id: str, owner: str, secret: bytes = b"secret", tenant: str = "default"
) -> AccessKey:
    sealed = RING.seal(secret, secret_context(key_id))
    return AccessKey(key_id=key_id, tenant=tenant, user=owner, sealed_secret=sealed)


def store_of(*records: User | AccessKey | Policy) -> AuthStore:
    store = AuthStore()
    for record in records:
        apply(store, Create(record))
    return store


def apply(store: AuthStore, change: Change) -> None:
    """Applies a change that must succeed."""
    refusal = store.apply(change)
    assert refusal is None, refusal


def replace_user(store: AuthStore, new: User) -> None:
    """Alters a user as a careful administrator does: with the version just read."""
    old = store.user(new.tenant, new.name)
    assert old is not None
    apply(store, Alter(msgspec.structs.replace(new, version=old.version)))


def directory_of(*records: User | AccessKey | Policy) -> tuple[AuthStore, Directory]:
    store = store_of(*records)
    return store, Directory(store, RING.unseal)
