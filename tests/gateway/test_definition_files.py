"""What a file of definitions says is what is sent, or it is refused before anything is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.commands.common.documents import DocumentError, encoded

MOST = 100_000


def read(text: str, *, is_json: bool = False) -> Any:
    return json.loads(encoded(text, MOST, is_json=is_json))


def refused(text: str, *, is_json: bool = False) -> str:
    with pytest.raises(DocumentError) as error:
        encoded(text, MOST, is_json=is_json)
    return str(error.value)


def test_names_are_those_that_are_spelled() -> None:
    text = "{no: {}, 2026-11-28: {}, 010: {}, ~: {}, 1e3: {}, on: 2026-11-28}"
    expected: dict[str, Any] = {name: {} for name in ("no", "2026-11-28", "010", "~", "1e3")}
    assert read(text) == {**expected, "on": "2026-11-28"}


def test_anchors_stand_for_what_they_name() -> None:
    text = """
usual: &usual {message_ttl_ms: 5, groups: {}}
orders: {<<: *usual, message_ttl_ms: 7}
invoices: *usual
"""
    found = read(text)
    assert found["orders"] == {"message_ttl_ms": 7, "groups": {}}
    assert found["invoices"] == found["usual"]


def test_a_small_file_that_stands_for_gigabytes_is_refused_before_it_is_built() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    assert "apply it in parts" in refused("\n".join(lines))
    assert "apply it in parts" in refused(json.dumps(["x" * MOST]), is_json=True)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: &a [*a]", "*a stands for itself"),
        ("a: *b", "*b stands for itself, or for nothing"),
        ("a: 1\nb: 2\na: 3", "'a' stands twice in one place, line 3"),
        ("[" * 100_000, "stand in one another"),
        ("? [a]\n: 1", "cannot be a name"),
        ("a: .nan", "not JSON compliant"),
        ("a: !!binary aGk=", "not JSON serializable"),
        ("a: !!python/object:os.system {}", "could not determine a constructor"),
        ("a: 1\n---\nb: 2", "single document"),
        ("a: [", "expected"),
    ],
)
def test_yaml_that_cannot_be_sent_is_refused(text: str, why: str) -> None:
    assert why in refused(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "'c' stands twice in one place"),
        ("[" * 100_000, "recursion"),
        ('{"a": 1e999}', "not JSON compliant"),
        ('{"a": "\\ud800"}', "surrogates not allowed"),
        ("{", "line 1 column 2"),
    ],
)
def test_json_that_cannot_be_sent_is_refused(text: str, why: str) -> None:
    assert why in refused(text, is_json=True)
