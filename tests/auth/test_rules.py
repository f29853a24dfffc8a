from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auth.errors import AuthCode, AuthError
from auth.policies.policy_rules import (
    PATTERN_BYTES_MAX,
    PERMISSION_COUNT,
    RESOURCES_PER_RULE_MAX,
    TREE_LEVELS_MAX,
    Action,
    Effect,
    Resource,
    ResourceKind,
    Rule,
    action_of,
    kind_of,
    parse_rule,
    permission,
    rule_fault,
)


@pytest.mark.parametrize(
    "text",
    [
        "allow publish,consume topic:orders-* group:billing",
        "deny consume tree:sensors/+/private",
        "allow publish tree:sensors/${clientid}/#",
        "allow * *",
        "allow inspect topic:*",
        "deny configure 'topic:with blank'",
        "allow administer node:* tenant:acme",
    ],
)
def test_a_rule_reads_back_as_it_was_written(text: str) -> None:
    assert str(parse_rule(text)) == text


names = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0$"), min_size=1
).filter(lambda text: len(text.encode()) <= PATTERN_BYTES_MAX)


@given(
    st.builds(
        Rule,
        st.sampled_from(Effect),
        st.lists(st.sampled_from(Action), min_size=1, unique=True).map(tuple),
        st.lists(
            st.one_of(
                st.just(Resource(None)),
                st.builds(
                    Resource,
                    st.sampled_from([ResourceKind.TOPIC, ResourceKind.ROUTER, ResourceKind.GROUP]),
                    names,
                ),
            ),
            min_size=1,
            max_size=4,
        ).map(tuple),
    ).filter(lambda rule: rule_fault(rule) is None)
)
def test_any_rule_survives_being_written_and_read(rule: Rule) -> None:
    read = parse_rule(str(rule))
    assert (read.effect, set(read.actions), read.resources) == (
        rule.effect,
        set(rule.actions),
        rule.resources,
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "an effect, actions and at least one resource"),
        ("allow publish", "an effect, actions and at least one resource"),
        ("permit publish topic:a", "'permit' is no effect; known are allow, deny"),
        ("allow shout topic:a", "'shout' is no action"),
        ("allow publish, topic:a", "'' is no action"),
        ("allow publish topic", "kind:pattern"),
        ("allow publish queue:a", "'queue' is no kind of resource"),
        ("allow publish topic:", "empty"),
        ("allow publish 'topic:a", "quote"),
        ("allow publish topic:${user}", "placeholder"),
        ("allow publish tree:a/#/b", "last level"),
        ("allow publish tree:a/b#", "last level"),
        ("allow publish tree:a/+b", "whole of its level"),
        ("allow publish tree:a/+${clientid}", "whole of its level"),
        ("allow publish topic:" + "x" * (PATTERN_BYTES_MAX + 1), f"at most {PATTERN_BYTES_MAX}"),
        ("allow publish tree:" + "/" * TREE_LEVELS_MAX, f"at most {TREE_LEVELS_MAX}"),
        ("allow publish client:a", "to connect as client:a is consume"),
        ("allow publish" + " topic:a" * (RESOURCES_PER_RULE_MAX + 1), "write two rules"),
    ],
)
def test_a_wrong_rule_is_refused_with_what_is_wrong(text: str, complaint: str) -> None:
    with pytest.raises(AuthError) as caught:
        parse_rule(text)
    assert caught.value.code is AuthCode.INVALID_ARGUMENT
    assert complaint in caught.value.message


def test_limits_are_reached_without_complaint() -> None:
    parse_rule("allow publish topic:" + "x" * PATTERN_BYTES_MAX)
    parse_rule("allow publish tree:" + "/" * (TREE_LEVELS_MAX - 1))
    parse_rule("allow publish" + " topic:a" * RESOURCES_PER_RULE_MAX)


def test_a_rule_without_actions_or_resources_cannot_be_stored() -> None:
    assert rule_fault(Rule(Effect.ALLOW, (), (Resource(None),)))
    assert rule_fault(Rule(Effect.ALLOW, (Action.PUBLISH,), ()))


@given(st.text(max_size=200))
def test_only_the_designed_error_leaves_the_parser(text: str) -> None:
    with suppress(AuthError):
        assert rule_fault(parse_rule(text)) is None


def test_every_action_and_kind_has_its_own_number() -> None:
    numbers = {
        permission(action, kind): (action, kind) for action in Action for kind in ResourceKind
    }
    assert sorted(numbers) == list(range(PERMISSION_COUNT))
    assert all((action_of(n), kind_of(n)) == pair for n, pair in numbers.items())
