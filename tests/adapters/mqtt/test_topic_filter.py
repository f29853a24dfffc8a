"""Filters: what is valid, what they match, and shared subscriptions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.mqtt.codec.errors import MqttError
from adapters.mqtt.codec.reason_codes import ReasonCode
from adapters.mqtt.codec.topic_filter import is_shared, parse_filter


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sport/tennis#",
        "sport/tennis/#/ranking",
        "#/",
        "##",
        "sport+",
        "sport/+x/y",
        "+sport",
        "a/++/b",
        "$share/",
        "$share//a",
        "$share/g",
        "$share/g/",
        "$share/+/a",
        "$share/#/a",
        "$share/g+/a",
        "$share/g/a#",
        "a" * 65_536,
        "ü" * 32_768,
    ],
)
def test_a_filter_that_breaks_a_rule_is_refused(text):
    """[MQTT-4.7.1-1], [MQTT-4.7.1-2], [MQTT-4.7.3-1], [MQTT-4.7.3-3], [MQTT-4.8.2-1],
    [MQTT-4.8.2-2]."""
    with pytest.raises(MqttError) as caught:
        parse_filter(text)
    assert caught.value.reason_code == ReasonCode.TOPIC_FILTER_INVALID


@pytest.mark.parametrize(
    "text",
    [
        "#",
        "+",
        "/",
        "//",
        "+/+",
        "/+",
        "+/",
        "a/#",
        "+/a/#",
        "$SYS/#",
        "$share",
        "a b/ü",
        "ü" * 32_767,
    ],
)
def test_a_filter_that_breaks_no_rule_is_taken_as_it_is(text):
    parsed = parse_filter(text)
    assert (parsed.share_name, parsed.pattern) == ("", text)
    assert "/".join(parsed.levels) == text


def test_a_filter_may_have_so_many_levels_and_no_more():
    assert len(parse_filter("/".join("a" * 4), levels_max=4).levels) == 4
    with pytest.raises(MqttError):
        parse_filter("/".join("a" * 5), levels_max=4)


@pytest.mark.parametrize(
    ("text", "share_name", "pattern"),
    [
        ("$share/g/a/+", "g", "a/+"),
        ("$share/g//", "g", "/"),
        ("$share/g/#", "g", "#"),
        ("$share/g/$share/h/x", "g", "$share/h/x"),
        ("$sharex/g/a", "", "$sharex/g/a"),
        ("$SHARE/g/a", "", "$SHARE/g/a"),
    ],
)
def test_a_shared_subscription_is_parted_into_group_and_filter(text, share_name, pattern):
    parsed = parse_filter(text)
    assert (parsed.share_name, parsed.pattern) == (share_name, pattern)
    assert is_shared(text) == bool(share_name)


@pytest.mark.parametrize(
    ("text", "name", "matches"),
    [
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/tennis/player1/#", "sport/tennis/player10", False),
        ("sport/#", "sport", True),
        ("sport/#", "sport/", True),
        ("sport/+/#", "sport", False),
        ("#", "anything/at/all", True),
        ("#", "/", True),
        ("sport/tennis/+", "sport/tennis/player1", True),
        ("sport/tennis/+", "sport/tennis/player1/ranking", False),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        ("+", "finance", True),
        ("+/b/+/d", "a/b/c/d", True),
        ("+/b/+/d", "a/b/c/e", False),
        ("a/b", "a/b", True),
        ("a/b", "a/B", False),
        ("a/b", "a/b/", False),
        ("/a", "a", False),
        ("$share/g/a/+", "a/b", True),
    ],
)
def test_matching_follows_the_levels(text, name, matches):
    """[MQTT-4.7.3-4]; the examples of MQTT5 4.7.1 and their neighbours."""
    assert parse_filter(text).matches(name) == matches


@pytest.mark.parametrize(
    ("text", "matches"),
    [("#", False), ("+/monitor", False), ("+/#", False), ("$SYS/#", True), ("$SYS/+", True)],
)
def test_a_filter_that_begins_with_a_wildcard_does_not_see_dollar_names(text, matches):
    """[MQTT-4.7.2-1]."""
    assert parse_filter(text).matches("$SYS/monitor") == matches


def naive_match(levels: list[str], name: list[str]) -> bool:
    """The definition of MQTT5 4.7.1, by recursion."""
    if levels == ["#"]:
        return True
    if not levels or not name:
        return levels == name
    return levels[0] in ("+", name[0]) and (
        naive_match(levels[1:], name[1:]) or (len(name) == 1 and levels[1:] == ["#"])
    )


@given(
    st.lists(st.sampled_from(["a", "b", "", "+", "$x"]), min_size=1, max_size=5),
    st.booleans(),
    st.lists(st.sampled_from(["a", "b", "", "$x"]), min_size=1, max_size=5),
)
def test_matching_agrees_with_the_definition(levels, all_below, name):
    levels = [*levels, "#"] if all_below else levels
    if levels == [""] or name == [""]:
        return
    dollar = name[0].startswith("$") and levels[0] in ("+", "#")
    expected = naive_match(levels, name) and not dollar
    assert parse_filter("/".join(levels)).matches("/".join(name)) == expected
