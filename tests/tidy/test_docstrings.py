"""A docstring says something: one of a single word (`Once.`) is left out, or becomes a sentence."""

from __future__ import annotations

import ast

import pytest

from tests.tidy.source_tree import PACKAGES, python_files, text_of


def docstrings_in(text: str) -> list[tuple[int, str]]:
    """(line, text) of each string that stands by itself, of modules, functions and fields alike."""
    return [
        (node.lineno, node.value.value)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]


def single_words(text: str) -> list[int]:
    """The lines at which a docstring of less than two words begins."""
    return [line for line, said in docstrings_in(text) if len(said.split()) < 2]


def test_no_docstring_is_a_single_word() -> None:
    found = [
        f"{file}:{line}"
        for file in python_files()
        if file.parts[0] in PACKAGES
        for line in single_words(text_of(file) or "")
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('def f():\n    """Once."""\n', [2]),
        ('"""`client.Consumer`."""\n', [1]),
        ('class C:\n    x = 1\n    """Unanswered."""\n', [3]),
        ('def f():\n    """It is done once."""\n    return "once"\n', []),
    ],
)
def test_a_single_word_is_found_wherever_it_stands(text: str, lines: list[int]) -> None:
    assert single_words(text) == lines
