from __future__ import annotations

import gc

import pytest

from auth.policies.matching import ANY_NAME
from auth.policies.policy_decisions import OWN_DECISIONS_MAX, SHARED_DECISIONS_MAX, PolicyBook
from auth.policies.policy_rules import Action, Policy, ResourceKind, parse_rule, permission
from auth.principal import OPERATOR, Principal
from auth.users.records import Alter, Create, RemoveUser, User
from auth.users.store import AuthStore

from .makers import apply, directory_of, policy, replace_user, user

PUBLISH = permission(Action.PUBLISH, ResourceKind.TOPIC)
CONSUME = permission(Action.CONSUME, ResourceKind.TOPIC)
PUBLISH_TREE = permission(Action.PUBLISH, ResourceKind.TREE)
CONSUME_TREE = permission(Action.CONSUME, ResourceKind.TREE)
ADMINISTER_TENANT = permission(Action.ADMINISTER, ResourceKind.TENANT)
ADMINISTER_NODE = permission(Action.ADMINISTER, ResourceKind.NODE)

ALICE = Principal("default", "alice")


def book_of(*records: User | Policy) -> tuple[AuthStore, PolicyBook]:
    store, directory = directory_of(*records)
    return store, PolicyBook(directory)


def test_what_no_rule_allows_is_denied() -> None:
    _, book = book_of(policy("p", "allow publish topic:orders"), user("alice", "p"), user("bob"))
    alice = book.access(ALICE)
    assert alice.allows(PUBLISH, "orders")
    assert not alice.allows(CONSUME, "orders")
    assert not alice.allows(PUBLISH, "orders2")
    assert not book.access(Principal("default", "bob")).allows(PUBLISH, "orders")


def test_a_deny_beats_every_allow_in_whatever_policy_and_order() -> None:
    for policies in (("open", "closed"), ("closed", "open")):
        _, book = book_of(
            policy("open", "allow * *"),
            policy("closed", "deny consume topic:pay*"),
            user("alice", *policies),
        )
        access = book.access(ALICE)
        assert not access.allows(CONSUME, "payments")
        assert access.allows(PUBLISH, "payments")
        assert access.allows(CONSUME, "orders")


def test_kinds_of_names_are_apart() -> None:
    _, book = book_of(policy("p", "allow publish topic:x"), user("alice", "p"))
    access = book.access(ALICE)
    assert not access.allows(permission(Action.PUBLISH, ResourceKind.ROUTER), "x")
    assert not access.allows(PUBLISH_TREE, "x")


def test_a_wildcard_subscription_over_a_denied_name_is_refused_whole() -> None:
    _, book = book_of(
        policy("p", "allow consume tree:#", "deny consume tree:plant/secret/#"),
        user("alice", "p"),
    )
    access = book.access(ALICE)
    assert access.allows(CONSUME_TREE, "plant/open/#")
    assert access.allows(CONSUME_TREE, "office/#")
    for subscription in ("#", "plant/#", "plant/+", "+/secret/x", "plant/secret"):
        assert not access.allows(CONSUME_TREE, subscription), subscription


def test_client_ids_are_apart_on_one_login() -> None:
    _, book = book_of(policy("p", "allow publish tree:dev/${clientid}/#"), user("alice", "p"))
    one, two = book.access(ALICE, "one"), book.access(ALICE, "two")
    for _ in range(2):  # the second round answers from the caches
        assert one.allows(PUBLISH_TREE, "dev/one/x")
        assert not two.allows(PUBLISH_TREE, "dev/one/x")
        assert two.allows(PUBLISH_TREE, "dev/two/x")
        assert not book.access(ALICE).allows(PUBLISH_TREE, "dev/one/x")


def test_an_open_connection_obeys_the_policy_of_now() -> None:
    store, book = book_of(policy("p", "allow publish topic:a"), user("alice", "p"))
    access = book.access(ALICE)
    assert access.allows(PUBLISH, "a")
    assert not access.allows(PUBLISH, "b")
    new = Policy(
        tenant="default", name="p", rules=(parse_rule("allow publish topic:b"),), version=1
    )
    apply(store, Alter(new))
    assert not access.allows(PUBLISH, "a")
    assert access.allows(PUBLISH, "b")


def test_a_policy_that_becomes_personal_takes_effect_on_open_connections() -> None:
    store, book = book_of(policy("p", "allow publish tree:dev/#"), user("alice", "p"))
    access = book.access(ALICE, "one")
    assert access.allows(PUBLISH_TREE, "dev/two")
    rules = (parse_rule("allow publish tree:dev/${clientid}"),)
    apply(store, Alter(Policy(tenant="default", name="p", rules=rules, version=1)))
    assert not access.allows(PUBLISH_TREE, "dev/two")
    assert access.allows(PUBLISH_TREE, "dev/one")


def test_a_user_whose_policies_change_is_judged_by_the_new_ones() -> None:
    store, book = book_of(
        policy("p", "allow publish topic:a"),
        policy("q", "allow consume topic:a"),
        user("alice", "p"),
    )
    access = book.access(ALICE)
    assert access.allows(PUBLISH, "a")
    replace_user(store, user("alice", "q"))
    assert not access.allows(PUBLISH, "a")
    assert access.allows(CONSUME, "a")


@pytest.mark.parametrize("how", ["removed", "disabled"])
def test_who_is_removed_or_disabled_keeps_nothing(how: str) -> None:
    store, book = book_of(policy("p", "allow * *"), user("alice", "p"))
    access = book.access(ALICE)
    assert access.allows(PUBLISH, "a")
    assert access.is_alive()
    if how == "removed":
        apply(store, RemoveUser("default", "alice"))
    else:
        replace_user(store, user("alice", "p", enabled=False))
    assert not access.allows(PUBLISH, "a")
    assert not access.is_alive()
    assert "no such principal" in access.explain(PUBLISH, "a").reason


def test_rules_are_another_object_whenever_they_may_decide_otherwise() -> None:
    store, book = book_of(policy("p", "allow * *"), policy("q", "allow * *"), user("alice", "p"))
    access = book.access(ALICE)
    rules = access.rules()
    apply(store, Create(user("bob", "q")))
    assert access.rules() is rules
    replace_user(store, user("alice", "p", "q"))
    changed = access.rules()
    assert changed is not rules
    apply(store, RemoveUser("default", "alice"))
    assert access.rules() not in (rules, changed)


def test_who_has_lost_all_rights_leaves_nothing_behind_for_others() -> None:
    store, book = book_of(policy("p", "allow * *"), user("alice", "p"), user("bob", "p"))
    gone, here = book.access(ALICE), book.access(Principal("default", "bob"))
    apply(store, RemoveUser("default", "alice"))
    assert not gone.allows(PUBLISH, "a")
    assert here.allows(PUBLISH, "a")
    assert not gone.allows(PUBLISH, "a")


def test_another_tenant_is_out_of_reach() -> None:
    _, book = book_of(
        policy("everything", "allow * *", tenant="acme"),
        user("eve", "everything", "administrator", tenant="acme"),
    )
    access = book.access(Principal("acme", "eve"))
    assert access.allows(ADMINISTER_TENANT, "acme")
    assert not access.allows(ADMINISTER_TENANT, "default")
    assert not access.allows(ADMINISTER_NODE, "n1")
    assert "has no say" in access.explain(ADMINISTER_TENANT, "default").reason


def test_administrators_of_the_default_tenant_reach_nodes_and_tenants() -> None:
    _, book = book_of(user("root", "administrator"))
    access = book.access(Principal("default", "root"))
    assert access.allows(ADMINISTER_TENANT, "acme")
    assert access.allows(ADMINISTER_NODE, "n1")


def test_the_full_policy_is_everything_but_administration() -> None:
    _, book = book_of(user("alice", "full"))
    access = book.access(ALICE)
    assert access.allows(PUBLISH, "any")
    assert access.allows(CONSUME_TREE, "#")
    assert access.allows(CONSUME_TREE, "$SYS/#")
    assert access.allows(permission(Action.CONFIGURE, ResourceKind.ROUTER), "any")
    assert not access.allows(ADMINISTER_TENANT, "default")
    assert not access.allows(ADMINISTER_NODE, "n1")


def test_two_policies_add_up() -> None:
    _, book = book_of(user("alice", "full", "administrator"))
    assert book.access(ALICE).allows(ADMINISTER_TENANT, "default")


def test_the_operator_may_do_everything() -> None:
    _, book = book_of()
    access = book.access(OPERATOR)
    assert access.allows(ADMINISTER_NODE, "n1")
    assert access.allows(PUBLISH, "x")


def test_an_explanation_names_the_rule_the_principal_and_the_name() -> None:
    _, book = book_of(
        policy("p", "allow publish topic:a*", "deny publish topic:ab"), user("alice", "p")
    )
    access = book.access(ALICE, "phone")
    denied = access.explain(PUBLISH, "ab")
    assert (denied.allowed, denied.policy, denied.rule_number) == (False, "p", 2)
    assert denied.rule == "deny publish topic:ab"
    assert (denied.principal, denied.client_id, denied.name) == (ALICE, "phone", "ab")
    assert (denied.action, denied.kind) == (Action.PUBLISH, ResourceKind.TOPIC)
    allowed = access.explain(PUBLISH, "ac")
    assert (allowed.allowed, allowed.policy, allowed.rule_number) == (True, "p", 1)
    by_default = access.explain(CONSUME, "ab")
    assert (by_default.allowed, by_default.policy, by_default.rule_number) == (False, "", 0)
    assert by_default.reason == "no rule allows it"


def test_an_explanation_and_the_cached_answer_are_the_same_decision() -> None:
    _, book = book_of(
        policy("p", "allow publish topic:a*", "deny publish topic:ab"), user("alice", "p")
    )
    access = book.access(ALICE)
    for name in ("a", "ab", "abc", "b", ""):
        assert [access.allows(PUBLISH, name)] * 2 == [access.explain(PUBLISH, name).allowed] * 2
        assert access.allows(PUBLISH, name) == access.explain(PUBLISH, name).allowed


@pytest.mark.parametrize(
    ("rule", "bound"),
    [
        ("allow publish topic:*", SHARED_DECISIONS_MAX),
        ("allow publish topic:${clientid}-*", OWN_DECISIONS_MAX),
    ],
)
def test_names_that_a_client_makes_up_do_not_grow_the_cache_past_its_bound(
    rule: str, bound: int
) -> None:
    _, book = book_of(policy("p", rule), user("alice", "p"))
    access = book.access(ALICE, "c")
    for number in range(2 * bound + 10):
        assert access.allows(PUBLISH, f"c-{number}")
        assert len(access._decisions[PUBLISH]) <= bound
    assert access.allows(PUBLISH, "c-0")


def test_connections_share_what_is_not_personal_and_free_it_with_the_last() -> None:
    _, book = book_of(policy("p", "allow publish topic:*"), user("alice", "p"), user("bob", "p"))
    one, two = book.access(ALICE), book.access(Principal("default", "bob"))
    assert one.allows(PUBLISH, "a")
    assert two.allows(PUBLISH, "b")
    assert one._decisions is two._decisions
    assert book.statistics() == 1
    del one, two
    gc.collect()
    assert book.statistics() == 0


def test_an_idle_connection_owns_no_table() -> None:
    _, book = book_of(policy("p", "allow publish tree:${clientid}"), user("alice", "p"))
    one, two = book.access(ALICE, "1"), book.access(ALICE, "2")
    assert one.is_alive()
    assert two.is_alive()
    assert one._decisions is two._decisions
    assert one.allows(PUBLISH_TREE, "1")
    assert not two.allows(PUBLISH_TREE, "1")


def test_creating_unrelated_users_keeps_cached_decisions() -> None:
    store, book = book_of(policy("p", "allow publish topic:*"), user("alice", "p"))
    access = book.access(ALICE)
    assert access.allows(PUBLISH, "a")
    before = access._decisions
    apply(store, Create(user("bob", "p")))
    assert access.allows(PUBLISH, "a")
    assert access._decisions is before


USE_CLIENT = permission(Action.CONSUME, ResourceKind.CLIENT)


def test_client_ids_are_free_until_an_allow_names_the_kind() -> None:
    for lines in (
        ("allow publish topic:orders",),
        ("allow publish *", "deny consume *"),
        ("allow * *",),
    ):
        _, book = book_of(policy("p", *lines), user("alice", "p"))
        assert book.access(ALICE).allows(USE_CLIENT, "any"), lines
        assert not book.access(Principal("default", "bob")).allows(USE_CLIENT, "any")


def test_as_soon_as_one_names_it_only_what_matches_is_allowed() -> None:
    _, book = book_of(
        policy("old", "allow publish tree:#"),
        policy("ids", "allow consume client:${username}:* tree:a"),
        user("alice", "old", "ids"),
    )
    access = book.access(ALICE, "alice:1")
    assert access.allows(USE_CLIENT, "alice:1")
    assert not access.allows(USE_CLIENT, "alice")
    assert not access.allows(USE_CLIENT, "alicex:1")
    assert access.explain(USE_CLIENT, "bob:1").reason == "no rule allows it"


def test_a_deny_that_names_client_ids_holds_and_one_of_everything_does_not() -> None:
    _, book = book_of(
        policy("p", "allow publish *", "deny consume *", "deny consume client:admin-*"),
        user("alice", "p"),
    )
    access = book.access(ALICE)
    assert access.allows(USE_CLIENT, "device")
    assert not access.allows(USE_CLIENT, "admin-1")


def test_any_name_takes_an_allow_of_all_and_no_deny_at_all() -> None:
    for lines, expected in (
        (("allow publish topic:*",), True),
        (("allow publish *",), True),
        (("allow publish topic:orders-*",), False),
        (("allow publish topic:${username}*",), False),
        (("allow publish topic:*", "deny publish topic:secret"), False),
        (("allow publish topic:*", "deny publish topic:${clientid}-x"), False),
        (("allow publish topic:*", "deny consume topic:secret"), True),
    ):
        _, book = book_of(policy("p", *lines), user("alice", "p"))
        assert book.access(ALICE).allows(PUBLISH, ANY_NAME) is expected, lines
