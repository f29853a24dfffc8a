"""The matchers against a model that enumerates names, and the rules for placeholders."""

from __future__ import annotations

import re
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from auth.policies.matching import NamePattern, TreeFilter, Values, compile_resource
from auth.policies.policy_rules import Resource, ResourceKind

NOBODY = Values("nobody")

# Names over levels that no filter below spells ("c") as well as those it does, and server names.
LEVELS = ["a", "b", "c"]
NAMES = [
    "/".join(levels)
    for first in (["a"], ["b"], ["c"], ["$s"])
    for depth in range(5)
    for levels in product(first, *[LEVELS] * depth)
]


def receives(filter_: str, name: str) -> bool:
    """MQTT5 4.7, written the slow way: a regular expression a level, and the rule for $."""
    if name.startswith("$") and filter_[0] in "+#":
        return False
    return matches_any(filter_, name)


def matches_any(filter_: str, name: str) -> bool:
    pattern = ""
    for number, level in enumerate(filter_.split("/")):
        if level == "#":
            pattern += ".*" if number == 0 else "(/.*)?"
        else:
            pattern += ("/" if number else "") + ("[^/]*" if level == "+" else re.escape(level))
    return re.fullmatch(pattern, name) is not None


level = st.sampled_from(["a", "b", "+"])
filters = st.builds(
    lambda levels, tail, first: "/".join([*first, *levels, *tail]) or "#",
    st.lists(level, max_size=3),
    st.sampled_from([[], ["#"]]),
    st.sampled_from([[], [], [], ["$s"]]),
)


@given(filters, filters)
def test_an_allow_covers_a_subscription_that_can_receive_nothing_else(
    pattern: str, subscription: str
) -> None:
    can_receive = [name for name in NAMES if receives(subscription, name)]
    expected = all(receives(pattern, name) for name in can_receive)
    assert TreeFilter(pattern).covers(subscription, NOBODY) == expected


@given(filters, filters)
def test_a_deny_touches_a_subscription_that_could_receive_one_such_name(
    pattern: str, subscription: str
) -> None:
    # A wildcard of a deny reaches server names; a wildcard of a subscription does not.
    expected = any(receives(subscription, name) and matches_any(pattern, name) for name in NAMES)
    assert TreeFilter(pattern).touches(subscription, NOBODY) == expected


@given(filters, st.sampled_from(NAMES))
def test_a_plain_name_is_covered_as_a_subscriber_would_receive_it(pattern: str, name: str) -> None:
    assert TreeFilter(pattern).covers(name, NOBODY) == receives(pattern, name)
    assert TreeFilter(pattern).touches(name, NOBODY) == matches_any(pattern, name)


@pytest.mark.parametrize("subscription", ["a/#/b", "#/a", "a/#/#"])
def test_a_filter_with_a_wildcard_inside_is_taken_for_all_below_it(subscription: str) -> None:
    assert TreeFilter("#").covers(subscription, NOBODY)
    assert not TreeFilter("a/b").covers(subscription, NOBODY)
    assert TreeFilter("a/b").touches(subscription, NOBODY)


@example("a*a", "a")
@example("ab*ba", "aba")
@example("*a*a*", "a")
@given(st.text("ab*", min_size=1, max_size=8), st.text("ab", max_size=10))
def test_a_name_pattern_is_text_with_stars(pattern: str, name: str) -> None:
    expected = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name) is not None
    assert NamePattern(pattern).covers(name, NOBODY) == expected
    assert NamePattern(pattern).touches(name, NOBODY) == expected


def test_no_pattern_costs_more_than_its_length_times_the_names() -> None:
    # A backtracking matcher would need longer than the age of the universe for this.
    assert not NamePattern("*a" * 200 + "b").covers("a" * 60_000, NOBODY)


def test_regular_expression_characters_mean_themselves() -> None:
    assert NamePattern("a.b+(c)").covers("a.b+(c)", NOBODY)
    assert not NamePattern("a.b").covers("axb", NOBODY)


def test_placeholders_stand_for_the_principal_and_its_client() -> None:
    who = Values("alice", "phone-1")
    assert TreeFilter("users/${username}/#").covers("users/alice/x", who)
    assert not TreeFilter("users/${username}/#").covers("users/bob/x", who)
    assert TreeFilter("${username}/dev-${clientid}").covers("alice/dev-phone-1", who)
    assert NamePattern("reply-${username}-*").covers("reply-alice-7", who)
    assert not NamePattern("reply-${username}-*").covers("reply-bob-7", who)
    assert TreeFilter("users/${username}/#").personal
    assert not TreeFilter("users/alice/#").personal


@pytest.mark.parametrize(
    "client_id", ["#", "+", "a/b", "", None, "${username}", "$SYS", "a\0b", "{username}"]
)
def test_a_client_id_that_could_reach_further_gets_nothing_and_is_denied_all(
    client_id: str | None,
) -> None:
    who = Values("alice", client_id)
    pattern = TreeFilter("devices/${clientid}/up")
    for name in ("devices/x/up", "devices/+/up", "devices/a/b/up", f"devices/{client_id}/up"):
        assert not pattern.covers(name, who)
        assert pattern.touches(name, who)
    assert not pattern.touches("elsewhere", who)


def test_a_value_in_a_name_pattern_is_text_even_if_it_is_a_star() -> None:
    pattern = NamePattern("q-${clientid}")
    assert pattern.covers("q-*", Values("u", "*"))
    assert not pattern.covers("q-anything", Values("u", "*"))
    assert not pattern.touches("q-anything", Values("u", "*"))


@pytest.mark.parametrize("client_id", ["", None])
def test_a_missing_value_in_a_name_pattern_allows_nothing_and_denies_everything(
    client_id: str | None,
) -> None:
    pattern = NamePattern("q-${clientid}")
    assert not pattern.covers("q-", Values("u", client_id))
    assert not pattern.covers("q-x", Values("u", client_id))
    assert pattern.touches("q-x", Values("u", client_id))


@given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=30))
def test_a_name_pattern_with_placeholders_covers_only_the_literal_text(
    username: str, client_id: str, other: str
) -> None:
    pattern = NamePattern("${username}|${clientid}")
    who = Values(username, client_id)
    name = f"{username}|{client_id}"
    assert pattern.covers(name, who) == bool(username and client_id)
    if other != name:
        assert not pattern.covers(other, who)


def test_the_resource_star_reaches_every_name() -> None:
    everything = compile_resource(Resource(None))
    assert all(everything.covers(name, NOBODY) for name in ("", "$SYS/x", "#", "any"))
    assert compile_resource(Resource(ResourceKind.TREE, "a/#")).covers("a/b", NOBODY)
    assert not compile_resource(Resource(ResourceKind.TOPIC, "a/+")).covers("a/b", NOBODY)
