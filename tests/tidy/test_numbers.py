"""Each member of an enumeration has a value of its own.

Python takes a second name for the same value as an alias, without a word: a command of the log
would be taken for another.
"""

from __future__ import annotations

import importlib
from enum import Enum, IntEnum
from typing import TYPE_CHECKING

from tests.tidy.source_tree import python_files, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

PRODUCT = ("adapters", "auth", "gateway", "kernel", "metering")


def enumerations(kind: type[Enum] = Enum) -> Iterator[type[Enum]]:
    """All that are loaded, once or more."""
    for each in kind.__subclasses__():
        yield each
        yield from enumerations(each)


def aliases(kind: type[Enum]) -> list[str]:
    """Names that stand for a member of another name."""
    named = kind.__members__.items()
    return [f"{kind.__qualname__}: {name}" for name, member in named if member.name != name]


def test_no_two_members_of_an_enumeration_have_the_same_value() -> None:
    for file in python_files():
        room = file.parts[0]
        if room in PRODUCT and any(each in (text_of(file) or "") for each in ("Enum", "Flag")):
            importlib.import_module(".".join(file.with_suffix("").parts).removesuffix(".__init__"))
    ours = [each for each in enumerations() if each.__module__.partition(".")[0] in PRODUCT]
    assert len(ours) > 50
    assert not [alias for each in ours for alias in aliases(each)]


def test_an_alias_is_found_however_its_value_is_written() -> None:
    first = 1

    class Command(IntEnum):
        A = first
        B = 2
        C = 3 - 2

    assert [each.rpartition(".")[2] for each in aliases(Command)] == ["Command: C"]
