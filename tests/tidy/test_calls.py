"""A call says what it hands over: no `f(*(a, b, c))`, which only saves lines.

Such a call hides the number of arguments from the reader and their types from mypy. Its arguments
stand there one by one, with their names where the values alone do not say what they are. A table in
a display (`[*("a", "b"), *("c", "d")]`) is another thing.
"""

from __future__ import annotations

import ast
import re

from tests.tidy.source_tree import python_files, text_of

PACKED = (ast.Tuple, ast.List)
STARRED = re.compile(r"\*\s*[(\[]")
"""What a file without it has none of, and need not be parsed."""


def packed_arguments(source: str) -> list[int]:
    """Return the lines where a call unpacks what is put together there."""
    return [
        argument.lineno
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call)
        for argument in call.args
        if isinstance(argument, ast.Starred) and isinstance(argument.value, PACKED)
    ]


def test_no_call_packs_its_arguments() -> None:
    found = {
        str(file): lines
        for file in python_files()
        if STARRED.search(text := text_of(file) or "") and (lines := packed_arguments(text))
    }
    assert found == {}


def test_packed_arguments_are_found_and_nothing_else() -> None:
    source = """
f(*(a, b), c)
g(
    a,
    *[b],
)
h(*args, *"a b".split(), **{"x": 1})
table = [*("a", "b"), *("c", "d")]
"""
    assert packed_arguments(source) == [2, 5]
