from __future__ import annotations

import pytest

from auth.errors import AuthCode, AuthError
from auth.policies.policy_decisions import PolicyBook
from auth.policies.policy_rules import Action, ResourceKind, permission
from auth.principal import Principal, PrincipalKind
from auth.users.development import DEVELOPMENT_SECRET, ReachableListener, development_principals
from auth.users.directory import Directory, secret_context
from auth.users.records import AccessKey, RemoveUser
from auth.users.store import AuthStore

from .makers import RING, access_key, apply, replace_user, store_of, user

HASH = (
    "$argon2id$v=19$m=19456,t=2,p=1"
    "$KNMZqn5HKhxP4rvPkPw5Hg$QJ4kRnPIvl7L+BCBROqLjcjLmXPMrArSJBXdo/rZ3v4"
)
DEVELOPMENT = development_principals([ReachableListener("amqp", "127.0.0.1", 5672)])
PUBLISH = permission(Action.PUBLISH, ResourceKind.TOPIC)


def test_a_login_with_a_password_has_a_hash_and_others_have_none() -> None:
    directory = Directory(
        store_of(
            user("alice", password_hash=HASH),
            user("keys-only"),
            user("off", password_hash=HASH, enabled=False),
        ),
        RING.unseal,
    )
    assert directory.password_hash("default", "alice") == HASH
    assert directory.password_hash("other", "alice") is None
    assert directory.password_hash("default", "keys-only") is None
    assert directory.password_hash("default", "off") is None
    assert directory.password_hash("default", "guest") is None


def test_an_access_key_gives_its_secret_and_the_principal_of_its_user() -> None:
    store = store_of(user("alice", tenant="acme"), access_key("AK1", "alice", b"s3", "acme"))
    directory = Directory(store, RING.unseal)
    key = directory.access_key("AK1")
    assert key is not None
    assert directory.secret_of(key) == b"s3"
    assert directory.principal_of(key) == Principal("acme", "alice")
    replace_user(store, user("alice", tenant="acme", enabled=False))
    assert directory.access_key("AK1") is None
    assert directory.principal_of(key) is None


def test_a_disabled_access_key_signs_nothing() -> None:
    sealed = RING.seal(b"s", secret_context("AK1"))
    key = AccessKey(
        key_id="AK1", tenant="default", user="alice", sealed_secret=sealed, enabled=False
    )
    directory = Directory(store_of(user("alice"), key), RING.unseal)
    assert directory.access_key("AK1") is None


def test_a_sealed_secret_moved_to_another_key_does_not_open() -> None:
    moved = AccessKey(
        key_id="AK2",
        tenant="default",
        user="alice",
        sealed_secret=access_key("AK1", "alice").sealed_secret,
    )
    directory = Directory(store_of(user("alice"), moved), RING.unseal)
    with pytest.raises(AuthError) as caught:
        directory.secret_of(moved)
    assert caught.value.code is AuthCode.DAMAGED


def test_the_development_login_works_with_messages_and_not_with_users() -> None:
    directory = Directory(AuthStore(), RING.unseal, DEVELOPMENT)
    assert directory.password_hash("default", "guest")
    assert directory.password_hash("acme", "guest") is None
    principal = directory.principal("default", "guest")
    assert principal == Principal("default", "guest", PrincipalKind.DEVELOPMENT)
    key = directory.access_key("weir")
    assert key is not None
    assert directory.secret_of(key) == DEVELOPMENT_SECRET
    assert directory.principal_of(key) == principal
    assert principal is not None
    access = PolicyBook(directory).access(principal)
    assert access.allows(PUBLISH, "anything")
    assert not access.allows(permission(Action.ADMINISTER, ResourceKind.TENANT), "default")


def test_without_development_nobody_is_guest() -> None:
    directory = Directory(AuthStore(), RING.unseal)
    assert directory.principal("default", "guest") is None
    assert directory.access_key("weir") is None
    stale = Principal("default", "guest", PrincipalKind.DEVELOPMENT)
    assert not PolicyBook(directory).access(stale).allows(PUBLISH, "anything")


def test_a_stored_user_and_key_hide_the_development_ones() -> None:
    store = store_of(user("guest", password_hash=HASH), access_key("weir", "guest", b"mine"))
    directory = Directory(store, RING.unseal, DEVELOPMENT)
    assert directory.password_hash("default", "guest") == HASH
    assert directory.principal("default", "guest") == Principal("default", "guest")
    key = directory.access_key("weir")
    assert key is not None
    assert directory.secret_of(key) == b"mine"
    assert directory.principal_of(key) == Principal("default", "guest")


def test_a_disabled_stored_guest_is_not_replaced_by_the_development_one() -> None:
    directory = Directory(store_of(user("guest", enabled=False)), RING.unseal, DEVELOPMENT)
    assert directory.password_hash("default", "guest") is None
    assert directory.principal("default", "guest") is None


def test_a_removed_user_is_no_principal() -> None:
    store = store_of(user("alice", password_hash=HASH))
    directory = Directory(store, RING.unseal)
    assert directory.principal("default", "alice") == Principal("default", "alice")
    apply(store, RemoveUser("default", "alice"))
    assert directory.principal("default", "alice") is None
