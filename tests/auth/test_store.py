from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import auth.users.store as store_module
from auth.errors import AuthCode, AuthError
from auth.policies.policy_rules import Policy, parse_rule
from auth.users.records import (
    MEMORY_COST_KIB_MAX,
    POLICIES_PER_USER_MAX,
    RULES_PER_POLICY_MAX,
    AccessKey,
    Alter,
    Change,
    Create,
    Record,
    RemoveAccessKey,
    RemovePolicy,
    RemoveUser,
    User,
    password_hash_fault,
)
from auth.users.store import ACCESS_KEYS_PER_USER_MAX, AuthStore

from .makers import access_key, apply, policy, store_of, user

HASH = (
    "$argon2id$v=19$m=19456,t=2,p=1"
    "$KNMZqn5HKhxP4rvPkPw5Hg$QJ4kRnPIvl7L+BCBROqLjcjLmXPMrArSJBXdo/rZ3v4"
)


def code(refusal: AuthError | None) -> AuthCode | None:
    return refusal.code if refusal is not None else None


def test_records_are_created_altered_and_removed() -> None:
    store = store_of(policy("p", "allow * *"), user("alice", "p"), access_key("AK1", "alice"))
    assert store.user("default", "alice") == user("alice", "p", version=1)
    apply(store, Alter(user("alice", enabled=False, version=1)))
    altered = store.user("default", "alice")
    assert altered is not None
    assert (altered.enabled, altered.version) == (False, 2)
    apply(store, RemovePolicy("default", "p"))
    apply(store, RemoveAccessKey("AK1"))
    apply(store, RemoveUser("default", "alice"))
    assert list(store.records()) == []


def test_users_are_counted_by_tenant_for_as_long_as_there_are_any() -> None:
    store = store_of(user("alice"), user("bob", tenant="acme"), user("carol", tenant="acme"))
    apply(store, Alter(user("bob", tenant="acme", enabled=False, version=1)))
    assert store.users_by_tenant() == {"default": 1, "acme": 2}
    restored = AuthStore()
    restored.restore(store.records())
    assert restored.users_by_tenant() == store.users_by_tenant()
    for name in ("bob", "carol"):
        apply(store, RemoveUser("acme", name))
    assert store.users_by_tenant() == {"default": 1}


@pytest.mark.parametrize(
    "record", [user("alice"), access_key("AK1", "alice"), policy("p", "allow * *")]
)
def test_creating_what_exists_is_refused_and_changes_nothing(
    record: User | AccessKey | Policy,
) -> None:
    store = store_of(policy("p", "allow * *"), user("alice"), access_key("AK1", "alice"))
    before = list(store.records())
    assert code(store.apply(Create(record))) is AuthCode.ALREADY_EXISTS
    assert list(store.records()) == before


def test_an_alteration_of_something_altered_meanwhile_is_a_conflict() -> None:
    store = store_of(user("alice"))
    apply(store, Alter(user("alice", password_hash=HASH, version=1)))
    assert code(store.apply(Alter(user("alice", version=1)))) is AuthCode.CONFLICT
    kept = store.user("default", "alice")
    assert kept is not None
    assert kept.password_hash == HASH


@pytest.mark.parametrize(
    "change",
    [
        Alter(user("bob", version=1)),
        Alter(policy("q", "allow * *")),
        RemoveUser("default", "bob"),
        RemoveUser("other", "alice"),
        RemoveAccessKey("AK9"),
        RemovePolicy("default", "q"),
        Create(access_key("AK2", "bob")),
        Create(access_key("AK2", "alice", tenant="other")),
        Create(user("bob", "q")),
        Create(user("bob", "p", tenant="other")),
        Alter(user("alice", "q", version=1)),
    ],
)
def test_what_is_not_there_is_not_found(change: Change) -> None:
    store = store_of(policy("p", "allow * *"), user("alice"))
    before = list(store.records())
    assert code(store.apply(change)) is AuthCode.NOT_FOUND
    assert list(store.records()) == before


def test_a_policy_in_use_cannot_be_removed() -> None:
    store = store_of(policy("p", "allow * *"), user("alice", "p"), user("bob", "p"))
    refusal = store.apply(RemovePolicy("default", "p"))
    assert code(refusal) is AuthCode.IN_USE
    apply(store, RemoveUser("default", "alice"))
    apply(store, Alter(user("bob", version=1)))
    apply(store, RemovePolicy("default", "p"))


def test_a_user_takes_its_access_keys_along() -> None:
    store = store_of(user("alice"), access_key("AK1", "alice"), access_key("AK2", "alice"))
    assert [key.key_id for key in store.access_keys_of("default", "alice")] == ["AK1", "AK2"]
    apply(store, RemoveUser("default", "alice"))
    assert store.access_key("AK1") is None
    apply(store, Create(user("alice")))
    assert store.access_keys_of("default", "alice") == []


def test_an_access_key_cannot_change_hands() -> None:
    store = store_of(user("alice"), user("bob"), access_key("AK1", "alice"))
    stolen = msgspec.structs.replace(access_key("AK1", "bob"), version=1)
    assert code(store.apply(Alter(stolen))) is AuthCode.INVALID_ARGUMENT


def test_access_key_ids_are_unique_over_tenants() -> None:
    store = store_of(user("alice"), user("bob", tenant="t2"), access_key("AK1", "alice"))
    change = Create(access_key("AK1", "bob", tenant="t2"))
    assert code(store.apply(change)) is AuthCode.ALREADY_EXISTS


@pytest.mark.parametrize(
    "record",
    [
        user(""),
        user("a:b"),
        user("a", tenant=""),
        user("a", "p", "p"),
        user("a", *[f"p{n}" for n in range(POLICIES_PER_USER_MAX + 1)]),
        user("a", password_hash="secret"),
        user("a", password_hash=HASH.replace("argon2id", "argon2i")),
        user("a", password_hash=HASH.replace("m=19456", f"m={MEMORY_COST_KIB_MAX + 1}")),
        user("a", password_hash=HASH.replace("t=2", "t=1000000")),
        user("a", password_hash=HASH.replace("p=1", "p=200")),
        user("a", password_hash=HASH.replace("m=19456", "m=0")),
        access_key("AK/1", "alice"),
        access_key("AK,1", "alice"),
        access_key("A" * 129, "alice"),
        AccessKey(key_id="AK2", tenant="default", user="alice", sealed_secret=b""),
        AccessKey(key_id="AK2", tenant="default", user="alice", sealed_secret=bytes(2000)),
        Policy(tenant="default", name="p", rules=()),
        Policy(
            tenant="default",
            name="p",
            rules=(parse_rule("allow * *"),) * (RULES_PER_POLICY_MAX + 1),
        ),
        policy("administrator", "deny * *"),
        policy("full", "allow * *"),
    ],
)
def test_an_invalid_record_is_refused(record: User | AccessKey | Policy) -> None:
    store = store_of(user("alice"))
    assert code(store.apply(Create(record))) is AuthCode.INVALID_ARGUMENT


def test_the_number_of_users_keys_and_policies_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "USERS_MAX", 2)
    monkeypatch.setattr(store_module, "POLICIES_PER_TENANT_MAX", 2)
    store = store_of(user("a"), user("b"), policy("p", "allow * *"), policy("q", "allow * *"))
    assert code(store.apply(Create(user("c")))) is AuthCode.LIMIT_EXCEEDED
    assert code(store.apply(Create(policy("r", "allow * *")))) is AuthCode.LIMIT_EXCEEDED
    apply(store, Create(policy("r", "allow * *", tenant="other")))
    apply(store, Alter(user("a", enabled=False, version=1)))
    apply(store, RemovePolicy("default", "p"))
    apply(store, Create(policy("r", "allow * *")))
    for number in range(ACCESS_KEYS_PER_USER_MAX):
        apply(store, Create(access_key(f"AK{number}", "a")))
    assert code(store.apply(Create(access_key("AK9", "a")))) is AuthCode.LIMIT_EXCEEDED
    apply(store, RemoveAccessKey("AK0"))
    apply(store, Create(access_key("AK9", "a")))


def test_its_records_restore_the_same_store() -> None:
    store = store_of(
        policy("p", "allow publish tree:${clientid}/#"),
        user("alice", "p", "full", password_hash=HASH),
        user("alice", tenant="acme"),
        access_key("AK1", "alice"),
    )
    apply(store, Alter(user("alice", "p", version=1)))
    copy = AuthStore()
    generation = copy.generation
    copy.restore(store.records())
    assert list(copy.records()) == list(store.records())
    assert copy.generation > generation
    # Not only the records: also what hangs on them.
    assert code(copy.apply(RemovePolicy("default", "p"))) is AuthCode.IN_USE
    apply(copy, RemoveUser("default", "alice"))
    assert copy.access_key("AK1") is None


def test_equal_stores_give_equal_records_whatever_their_history() -> None:
    one = store_of(user("a"), user("b"), policy("p", "allow * *"))
    two = store_of(policy("p", "allow * *"), user("b"), user("x"), user("a"))
    apply(two, RemoveUser("default", "x"))
    assert list(one.records()) == list(two.records())


@pytest.mark.parametrize("damage", ["reversed", "doubled", "unversioned"])
def test_what_are_no_records_of_a_store_are_refused_and_change_nothing(damage: str) -> None:
    store = store_of(policy("p", "allow * *"), user("alice", "p"), access_key("AK1", "alice"))
    before = list(store.records())
    wrongs: dict[str, list[Record]] = {
        "reversed": before[::-1],
        "doubled": [*before, before[0]],
        "unversioned": [user("bob")],
    }
    with pytest.raises(AuthError) as caught:
        store.restore(wrongs[damage])
    assert caught.value.code is AuthCode.DAMAGED
    assert list(store.records()) == before


names = st.sampled_from(["a", "b"])
changes = st.one_of(
    st.builds(lambda n, p: Create(user(n, *p)), names, st.sets(names).map(sorted)),
    st.builds(
        lambda n, p, v: Alter(user(n, *p, version=v)),
        names,
        st.sets(names).map(sorted),
        st.integers(1, 3),
    ),
    st.builds(lambda n: Create(policy(n, "allow * *")), names),
    st.builds(lambda n: Create(access_key(n, n)), names),
    st.builds(lambda n: RemoveUser("default", n), names),
    st.builds(lambda n: RemovePolicy("default", n), names),
    st.builds(RemoveAccessKey, names),
)


@given(st.lists(changes, max_size=30))
def test_after_any_run_what_is_restored_behaves_like_the_store(run: list[Change]) -> None:
    store, copy = AuthStore(), AuthStore()
    for change in run:
        copy.restore(store.records())
        assert code(store.apply(change)) == code(copy.apply(change))
        assert list(store.records()) == list(copy.records())
        for name in ("a", "b"):
            found = store.user("default", name)
            for held in found.policies if found is not None else ():
                assert store.policy("default", held) is not None
        for key in (store.access_key("a"), store.access_key("b")):
            assert key is None or store.user(key.tenant, key.user) is not None


def test_only_changes_of_rights_raise_the_generation() -> None:
    store = store_of(user("alice"))
    generation = store.generation
    apply(store, Create(access_key("AK1", "alice")))
    apply(store, Alter(user("alice", password_hash=HASH, version=1)))
    assert store.generation == generation
    apply(store, Alter(user("alice", enabled=False, version=2)))
    assert store.generation > generation


def test_listings_are_of_one_tenant_and_in_order() -> None:
    store = store_of(user("b"), user("a"), user("c", tenant="t"), policy("p", "allow * *"))
    assert [each.name for each in store.users("default")] == ["a", "b"]
    assert [each.name for each in store.policies("default")] == ["p"]
    assert store.policies("t") == []
    assert store.user_count() == 3


def test_a_hash_of_this_server_is_accepted_and_a_truncated_one_is_not() -> None:
    assert password_hash_fault(HASH) is None
    assert password_hash_fault(HASH[:30])
