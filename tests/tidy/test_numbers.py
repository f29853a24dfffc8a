"""Each member of an enumeration has a value of its own.

Python takes a second name for the same value as an alias, without a word: a command of the log
would be taken for another.
"""

from __future__ import annotations

import ast
from collections import Counter
from typing import TYPE_CHECKING

from tests.tidy.source_tree import python_files, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator


def aliases(source: str) -> Iterator[str]:
    """Values that an enumeration of a module gives to two names."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and any(
            ast.unparse(base).endswith(("Enum", "Flag")) for base in node.bases
        ):
            values = Counter(
                repr(each.value.value)
                for each in node.body
                if isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant)
            )
            yield from (f"{node.name}: {value}" for value, times in values.items() if times > 1)


def test_no_two_members_of_an_enumeration_have_the_same_value() -> None:
    found = [
        f"{file}: {each}"
        for file in python_files()
        if "Enum" in (text := text_of(file) or "") or "Flag" in text
        for each in aliases(text)
    ]
    assert not found, found


def test_an_alias_is_found() -> None:
    module = "class Command(IntEnum):\n    A = 1\n    B = 2\n    C = 1\n"
    assert list(aliases(module)) == ["Command: 1"]
