"""SQL filters: what an expression means for a message, and that nonsense is refused, not run."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel.api.sql import DEPTH_MAX, EXPRESSION_CHARACTERS_MAX, compile_sql
from kernel.common.errors import Code, KernelError

MESSAGE: dict[str, object] = {
    "a": "5",
    "b": "ten",
    "price": "9.5",
    "flag": "TRUE",
    "region": "eu-west",
    "empty": "",
    "count": 7,
    "ratio": 0.25,
    "sure": True,
    "raw": b"bytes",
    "it's": "here",
    "x-header": "yes",
    "$a_1": "1",
}


@pytest.mark.parametrize(
    ("expression", "outcome"),
    [
        # numbers, whatever the writer's spelling of the attribute
        ("a = 5", True),
        ("a = 5.0", True),
        ("a <> 5", False),
        ("a > 4 and a < 6", True),
        ("a >= 5 AND a <= 5", True),
        ("5 < a", False),
        ("price > 9", True),
        ("price = 95e-1", True),
        ("a > -1", True),
        ("a > - 1", True),
        ("a = +5", True),
        ("count = 7", True),
        ("count = '7'", True),
        ("ratio < .5", True),
        ("a = count", False),
        ("b < region", None),
        ("a < price", True),
        # words
        ("b = 'ten'", True),
        ("b <> 'ten'", False),
        ("b <> 'two'", True),
        ("a = '5'", True),
        ("a = '5.0'", False),
        ("empty = ''", True),
        ("\"it's\" = 'here'", True),
        ("'it''s' = 'it''s'", True),
        ("\"x-header\" = 'yes'", True),
        ("$a_1 = 1", True),
        # a word is no number: unknown, also when negated
        ("b > 5", None),
        ("not b > 5", None),
        ("b = 5", None),
        ("b between 1 and 20", None),
        # NULL
        ("missing = 1", None),
        ("missing <> 1", None),
        ("NOT missing = 1", None),
        ("missing IS NULL", True),
        ("missing is not null", False),
        ("empty IS NULL", False),
        ("raw IS NULL", True),
        ("missing = 1 OR a = 5", True),
        ("missing = 1 OR a = 6", None),
        ("missing = 1 AND a = 6", False),
        ("missing = 1 AND a = 5", None),
        # BETWEEN, IN
        ("a BETWEEN 1 AND 5", True),
        ("a NOT BETWEEN 1 AND 4", True),
        ("a BETWEEN -5 AND 4.9", False),
        ("missing BETWEEN 1 AND 2", None),
        ("b IN ('one', 'ten')", True),
        ("b NOT IN ('one', 'ten')", False),
        ("b NOT IN ('one')", True),
        ("a IN (1, 5)", True),
        ("missing IN ('one')", None),
        ("missing NOT IN ('one')", None),
        # CONTAINS and its like
        ("region CONTAINS 'west'", True),
        ("region STARTSWITH 'eu'", True),
        ("region endswith 'eu'", False),
        ("region NOT CONTAINS 'north'", True),
        ("missing CONTAINS 'x'", None),
        ("count CONTAINS '7'", None),
        # TRUE and FALSE
        ("TRUE", True),
        ("FALSE", False),
        ("not true", False),
        ("flag", True),
        ("flag = TRUE", True),
        ("flag = FALSE", False),
        ("sure AND flag", True),
        ("sure = true", True),
        ("sure = 1", None),
        ("b", None),
        ("b = TRUE", None),
        # how it binds
        ("FALSE AND FALSE OR TRUE", True),
        ("FALSE AND (FALSE OR TRUE)", False),
        ("NOT FALSE AND FALSE", False),
        ("NOT (FALSE AND FALSE)", True),
        ("a between 1 and 9 and b = 'ten'", True),
        ("  a=5\n\tAND\rb<>'x' ", True),
    ],
)
def test_an_expression_means(expression: str, outcome: bool | None) -> None:
    assert compile_sql(expression)(MESSAGE.get) is outcome


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("", "character 1: a name or a value expected, not the end"),
        ("a =", "character 4: a name or a value expected, not the end"),
        ("a = 5 b", "character 7: the end, AND or OR expected, not 'b'"),
        ("a == 5", "character 4"),
        ("a != 5", "character 3: '!' is not understood here"),
        ("(a = 5", ") expected, not the end"),
        ("a = 5)", "the end, AND or OR expected, not ')'"),
        ("a IN ()", "a name or a value expected"),
        ("a IN ('x'", ") expected"),
        ("a IN 'x'", "( expected"),
        ("a < 'x'", "< compares numbers"),
        ("TRUE >= a", ">= compares numbers"),
        ("a BETWEEN 5 AND 1", "the smaller number first"),
        ("a BETWEEN 'a' AND 'b'", "expected, not \"'a'\""),
        ("a NOT = 5", "BETWEEN, IN, CONTAINS"),
        ("a NOT", "BETWEEN, IN, CONTAINS"),
        ("a IS 5", "NULL expected"),
        ("a CONTAINS 5", "a string expected"),
        ("5", "character 1: a condition expected"),
        ("'x' AND TRUE", "a condition expected"),
        ("AND", "a name or a value expected, not 'AND'"),
        ("a = 'x", "is not understood here"),
        ("a = 5x", "'5' is not understood here"),
        ("a = " + "9" * 41, "a number has at most 40 characters"),
        ("a = \u00e9", "'\\xe9' is not understood"),
        ("a" * (EXPRESSION_CHARACTERS_MAX + 1), "at most 4096 characters"),
        ("(" * 2_000, "nested deeper than 64"),
        ("NOT " * 1_000 + "TRUE", "nested deeper than 64"),
    ],
)
def test_a_mistake_is_refused_with_its_place(expression: str, words: str) -> None:
    with pytest.raises(KernelError) as caught:
        compile_sql(expression)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert words in caught.value.message
    assert caught.value.message.isascii()


def test_as_deep_as_allowed_works() -> None:
    depth = DEPTH_MAX - 1
    assert compile_sql("(" * depth + "a = 5" + ")" * depth)(MESSAGE.get) is True
    assert compile_sql(" OR ".join(["a = 6"] * 400 + ["a = 5"]))(MESSAGE.get) is True


WORDS = st.sampled_from(
    [
        *("a", "b", "price", "missing", "sure", "raw", "'x'", "'it''s'", '"q"', "5", "-5", "1.5e3"),
        *("AND", "or", "NOT", "BETWEEN", "in", "IS", "NULL", "true", "FALSE", "CONTAINS"),
        *("STARTSWITH", "endswith", "=", "<>", "<", "<=", ">", ">=", "(", ")", ",", "+", "-", "'"),
    ]
)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=50),
    st.binary(max_size=5),
    st.lists(st.integers(), max_size=2),
)


@settings(max_examples=600, deadline=None)
@given(
    st.one_of(st.lists(WORDS, max_size=25).map(" ".join), st.text(max_size=60)),
    st.dictionaries(st.sampled_from(["a", "b", "price", "sure", "q"]), VALUES),
)
def test_any_text_is_refused_or_has_one_of_three_outcomes(
    text: str, message: dict[str, object]
) -> None:
    try:
        predicate = compile_sql(text)
    except KernelError:
        return
    outcome = predicate(message.get)
    assert outcome in {True, False, None}
    negated = compile_sql(f"NOT ({text})")(message.get)
    assert negated is (None if outcome is None else not outcome)
