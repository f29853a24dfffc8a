"""Route tables and the way through routers, against definitions that are slow and plain."""

from __future__ import annotations

import re
from collections.abc import Mapping

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings

from kernel.api.model import AttributesMatch, Match, Route, RouterOptions
from kernel.routing.routing import LEVELS_MAX, RouteTable, resolve

levels = st.sampled_from(["a", "b", "", "ab", "é"])
keys = st.lists(levels, min_size=1, max_size=5).map("/".join)
patterns = st.lists(
    st.one_of(levels, st.sampled_from(["+", "#", "#"])), min_size=1, max_size=5
).map("/".join)


def plain_match(pattern: str, key: str) -> bool:
    """`+` is one level, `#` any number of them: as a regular expression over levels, of which an
    empty key or pattern has none.
    """
    wild = {"+": "(?:[^/]*/)", "#": "(?:[^/]*/)*"}
    levels = pattern.split("/") if pattern else []
    parts = [wild.get(level, re.escape(level) + "/") for level in levels]
    return re.fullmatch("".join(parts), key + "/" if key else "") is not None


def table_of(match: Match, *routes: Route) -> RouteTable:
    table = RouteTable(RouterOptions(match=match))
    for route in routes:
        table.add(route)
    return table


@settings(max_examples=300, deadline=None)
@given(st.lists(patterns, max_size=8, unique=True), keys)
def test_patterns_match_as_their_definition_says(wanted: list[str], key: str) -> None:
    routes = [Route(topic=f"t{number}", key=each) for number, each in enumerate(wanted)]
    found = list(table_of(Match.PATTERN, *routes).match(key, None))
    assert len(found) == len(set(found))
    assert set(found) == {each for each in routes if plain_match(each.key, key)}


@settings(max_examples=100, deadline=None)
@given(st.lists(patterns, min_size=1, max_size=8, unique=True), st.data())
def test_a_removed_route_is_as_one_never_added(wanted: list[str], data: st.DataObject) -> None:
    routes = [Route(topic="t", key=each) for each in wanted]
    table = table_of(Match.PATTERN, *routes)
    gone = data.draw(st.sets(st.sampled_from(routes)))
    for route in gone:
        table.remove(route)
    left = [each for each in routes if each not in gone]
    assert list(table.routes) == left
    for key in [each.key.replace("#", "a/b").replace("+", "b") for each in routes]:
        assert set(table.match(key, None)) == set(table_of(Match.PATTERN, *left).match(key, None))
    for route in left:
        table.remove(route)
    assert table._root.empty()


def test_two_routes_of_one_pattern_are_two() -> None:
    one, two = Route(topic="one", key="a/#"), Route(topic="two", key="a/#")
    table = table_of(Match.PATTERN, one, two)
    assert list(table.match("a", None)) == [one, two]
    table.remove(one)
    assert list(table.match("a/b", None)) == [two]


def test_a_pattern_of_many_wildcards_takes_no_time_for_ever() -> None:
    table = table_of(Match.PATTERN, Route(topic="t", key="/".join(["#", "a"] * 20 + ["x"])))
    assert list(table.match("/".join(["a"] * 100), None)) == []


def test_levels_beyond_the_bound_match_only_what_ends_in_any_number() -> None:
    table = table_of(Match.PATTERN, Route(topic="any", key="a/#"), Route(topic="end", key="#/z"))
    key = "/".join(["a"] * (LEVELS_MAX + 10) + ["z"])
    assert [each.topic for each in table.match(key, None)] == ["any"]


def test_exact_keys_are_whole_strings() -> None:
    table = table_of(Match.EXACT, Route(topic="a", key="k"), Route(topic="b", key="k/l"))
    assert [each.topic for each in table.match("k", None)] == ["a"]
    assert list(table.match("k/", None)) == []
    table.remove(Route(topic="a", key="k"))
    assert list(table.match("k", None)) == []


def attributes(**wanted: object) -> tuple[tuple[str, bytes], ...]:
    """Values as routes keep them; None: the name alone."""
    return tuple(
        (name, b"\xc0" if value is None else msgspec.msgpack.encode(value))
        for name, value in wanted.items()
    )


@pytest.mark.parametrize(
    ("wanted", "given_", "all_of", "any_of"),
    [
        ({}, {}, True, False),
        ({"x": 1}, {"x": 1}, True, True),
        ({"x": 1}, {"x": 2}, False, False),
        ({"x": 1}, {}, False, False),
        ({"x": 1}, {"x": "1"}, False, False),
        ({"x": 1, "y": "b"}, {"x": 1, "y": "b", "z": 0}, True, True),
        ({"x": 1, "y": "b"}, {"x": 1, "y": "c"}, False, True),
        ({"x": None}, {"x": "whatever"}, True, True),
        ({"x": None}, {"y": 1}, False, False),
        ({"x": None, "y": 2}, {"x": 0}, False, True),
    ],
)
def test_attributes_all_of_or_any_of(
    wanted: Mapping[str, object], given_: Mapping[str, object], all_of: bool, any_of: bool
) -> None:
    for combine, expected in (
        (AttributesMatch.ALL_OF, all_of),
        (AttributesMatch.ANY_OF, any_of),
    ):
        route = Route(topic="t", attributes=attributes(**wanted), combine=combine)
        table = table_of(Match.ATTRIBUTES, route)
        assert bool(list(table.match("key", given_))) == expected, combine
    assert list(table_of(Match.ALL, Route(topic="t")).match("x", None))


# --- Through routers ------------------------------------------------------------------------


def way(tables: dict[str, RouteTable], start: str, key: str = "k") -> list[str]:
    return resolve(tables.get, start, key, None)[0]


def test_each_topic_is_reached_once_by_any_number_of_ways() -> None:
    tables = {
        "a": table_of(Match.ALL, Route(router="b"), Route(router="c"), Route(topic="t")),
        "b": table_of(Match.ALL, Route(topic="t"), Route(router="c"), Route(topic="u")),
        "c": table_of(Match.ALL, Route(topic="u"), Route(router="a"), Route(router="c")),
    }
    for start in tables:
        assert sorted(way(tables, start)) == ["t", "u"]


def test_what_leads_nowhere_reaches_nothing() -> None:
    tables = {"a": table_of(Match.ALL, Route(router="gone"))}
    assert way(tables, "a") == []
    assert way(tables, "gone") == []


def test_an_alternate_takes_what_matched_nothing_and_only_that() -> None:
    first = RouteTable(RouterOptions(match=Match.EXACT, alternate="second"))
    first.add(Route(topic="t", key="k"))
    second = RouteTable(RouterOptions(match=Match.EXACT, alternate="third"))
    third = RouteTable(RouterOptions(match=Match.ALL, alternate="first"))
    third.add(Route(topic="rest"))
    tables = {"first": first, "second": second, "third": third}
    assert way(tables, "first", "k") == ["t"]
    assert way(tables, "first", "other") == ["rest"]


def test_a_match_that_leads_nowhere_is_a_match() -> None:
    table = RouteTable(RouterOptions(match=Match.ALL, alternate="rest"))
    table.add(Route(router="empty"))
    tables = {
        "a": table,
        "empty": table_of(Match.ALL),
        "rest": table_of(Match.ALL, Route(topic="t")),
    }
    assert way(tables, "a") == []


def test_alternates_that_go_round_in_a_circle_end() -> None:
    tables = {
        name: RouteTable(RouterOptions(match=Match.EXACT, alternate=other))
        for name, other in (("a", "b"), ("b", "a"))
    }
    assert way(tables, "a") == []
