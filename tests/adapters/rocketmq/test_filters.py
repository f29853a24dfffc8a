"""Filter expressions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.rocketmq.errors import Code, RocketmqError
from adapters.rocketmq.services.filters import filter_of
from kernel.api.filters import TagFilter


def expression(text: str, kind: int = 1) -> Any:
    return SimpleNamespace(type=kind, expression=text)


@pytest.mark.parametrize("text", ["", "*", " * ", "a || *"])
def test_everything(text: str) -> None:
    assert filter_of(expression(text)) is None


def test_no_type_means_tags() -> None:
    found = filter_of(expression("a", 0))
    assert isinstance(found, TagFilter)
    assert found.tags == {b"a"}


@pytest.mark.parametrize("text", ["a||b", " a || b ", "b||a||a"])
def test_tags(text: str) -> None:
    found = filter_of(expression(text))
    assert isinstance(found, TagFilter)
    assert found.tags == {b"a", b"b"}


@pytest.mark.parametrize("text", ["a||", "||", "a | b", "||".join(str(i) for i in range(257))])
def test_expressions_that_are_none(text: str) -> None:
    with pytest.raises(RocketmqError) as caught:
        filter_of(expression(text))
    assert caught.value.code is Code.ILLEGAL_FILTER_EXPRESSION


@pytest.mark.parametrize("text", ["a >", "a < 'x'", "", "a = 1 = 2", "x" * 4097])
def test_sql_that_is_none_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(RocketmqError) as caught:
        filter_of(expression(text, 2))
    assert caught.value.code is Code.ILLEGAL_FILTER_EXPRESSION
    assert caught.value.message


def test_an_expression_is_compiled_once() -> None:
    assert filter_of(expression("a > 1", 2)) is filter_of(expression("a > 1", 2))


@given(st.text(), st.integers(-1, 5))
def test_any_expression_is_taken_or_refused(text: str, kind: int) -> None:
    refused: RocketmqError | None = None
    try:
        filter_of(expression(text, kind))
    except RocketmqError as error:
        refused = error
    assert refused is None or refused.code is Code.ILLEGAL_FILTER_EXPRESSION
