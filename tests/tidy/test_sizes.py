"""Modules and functions stay small enough to be read at one go.

A module aims at 500 lines, is split where its idea ends, not where a number is reached, and never
has more than 800; a function has at most 70 besides its docstring, which may be as long as it needs
to be, and few have more than 40. tests/tidy/exceptions.py names the functions that are larger.
"""

from __future__ import annotations

import ast
from functools import cache
from typing import TYPE_CHECKING

from tests.tidy.exceptions import HOT_LOOPS
from tests.tidy.source_tree import python_files, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

MODULE_LINES_MAX = 800
FUNCTION_LINES_P95 = 40
FUNCTION_LINES = 70

Allowed = dict[str, tuple[int, str]]


def function_sizes(source: str) -> dict[str, int]:
    """Return the lines of each function, by qualified name, without its docstring."""
    return dict(_sizes(ast.parse(source), ""))


@cache
def sizes_in(file: Path) -> dict[str, int]:
    return function_sizes(text_of(file) or "")


def _sizes(node: ast.AST, prefix: str) -> Iterator[tuple[str, int]]:
    for child in ast.iter_child_nodes(node):
        name = prefix
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}{child.name}."
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield name[:-1], _lines(child) - _docstring_lines(child)
        yield from _sizes(child, name)


def _lines(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def _docstring_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return _lines(function.body[0]) if ast.get_docstring(function, clean=False) else 0


def too_large(sizes: Mapping[str, int], allowed: Allowed, aim: int) -> list[str]:
    """Return what breaks the rule: over its size, or needlessly excepted."""
    found = []
    for name, size in sizes.items():
        limit = allowed[name][0] if name in allowed else aim
        if size > limit:
            found.append(f"{name} has {size} lines, {limit} allowed")
    for name, (_, reason) in allowed.items():
        if sizes.get(name, 0) <= aim:
            found.append(f"{name} needs no exception: take it off the list")
        if not reason:
            found.append(f"{name}: an exception has a reason")
    return found


def test_no_module_is_too_large() -> None:
    sizes = {str(file): (text_of(file) or "").count("\n") for file in python_files()}
    assert too_large(sizes, {}, MODULE_LINES_MAX) == []


def test_no_function_is_too_large() -> None:
    sizes = {
        f"{file}::{name}": size for file in python_files() for name, size in sizes_in(file).items()
    }
    assert too_large(sizes, HOT_LOOPS, FUNCTION_LINES) == []


def test_most_functions_are_small() -> None:
    sizes = sorted(
        size
        for file in python_files()
        if file.parts[0] != "tests"
        for size in sizes_in(file).values()
    )
    assert sizes[len(sizes) * 95 // 100] <= FUNCTION_LINES_P95


def test_functions_are_measured_without_their_docstrings() -> None:
    source = '''
def plain():
    """One.

    Two.
    """
    return 1

class Thing:
    async def method(self):
        def inner():
            return 2
        return inner
'''
    sizes = {"plain": 2, "Thing.method": 4, "Thing.method.inner": 2}
    assert function_sizes(source) == sizes


def test_the_rule_finds_what_grows_and_what_needs_no_exception() -> None:
    allowed = {"b": (60, "why"), "c": (60, "why"), "d": (60, ""), "gone": (60, "why")}
    found = too_large({"a": 51, "b": 61, "c": 60, "d": 55, "e": 81, "f": 50}, allowed, 50)
    assert [line.split()[0].rstrip(":") for line in found] == ["a", "b", "e", "d", "gone"]
    assert too_large({"c": 60}, {"c": (60, "why")}, 50) == []
