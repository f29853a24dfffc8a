"""No two places hold the same lines: what is needed twice has a name and stands once.

Text is compared line by line, without its indentation. Blank lines and imports do not count. The
signature of a method counts as one line, because what implements an interface repeats it; that of
a function counts in full.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from tests.tidy.source_tree import python_files, text_of

SAME_LINES_MAX = 11
"""What is repeated at greater length is worth a name; a call of many arguments may be as long."""

Line = tuple[int, str]
"""Its number and its text."""


def counted_lines(source: str) -> list[Line]:
    """Return the lines that count, a signature of a method as the first of its lines."""
    found: list[Line] = []
    closing = ""
    for number, line in enumerate(source.splitlines(), start=1):
        text = line.strip()
        if closing:
            found[-1] = found[-1][0], found[-1][1] + text
            if line.startswith(closing):
                closing = ""
                if found[-1][1].startswith(("from ", "import ")):
                    found.pop()
        elif text.startswith(("from ", "import ")):
            if text.endswith("("):
                found.append((number, text))
                closing = line[: len(line) - len(line.lstrip())] + ")"
        elif text:
            found.append((number, text))
            if text.startswith(("def ", "async def ")) and text.endswith("(") and line != text:
                closing = line[: len(line) - len(line.lstrip())] + ")"
    return found


def repetitions(sources: Mapping[str, str], most: int) -> list[str]:
    """Return where more than `most` lines are those of another place, each time once."""
    size = most + 1
    numbers: dict[str, int] = {}
    lines = {name: counted_lines(source) for name, source in sources.items()}
    words = {
        name: [numbers.setdefault(text, len(numbers)) for _, text in each]
        for name, each in lines.items()
    }
    places: dict[tuple[int, ...], list[tuple[str, int]]] = defaultdict(list)
    for name, each in words.items():
        for at in range(len(each) - most):
            places[tuple(each[at : at + size])].append((name, at))
    again = {key: found for key, found in places.items() if len(found) > 1}
    # A longer repetition is found once for each of its lines: the first of them tells.
    return sorted(
        " and ".join(f"{name}:{lines[name][at][0]}" for name, at in found)
        for found in again.values()
        if not _goes_on(found, words, again, size)
    )


def _goes_on(
    found: Iterable[tuple[str, int]],
    words: Mapping[str, list[int]],
    again: Mapping[tuple[int, ...], object],
    size: int,
) -> bool:
    """Whether each place repeats what begins one line earlier as well."""
    return all(at > 0 and tuple(words[name][at - 1 : at - 1 + size]) in again for name, at in found)


def test_no_lines_are_repeated() -> None:
    sources = {str(file): text_of(file) or "" for file in python_files()}
    assert repetitions(sources, SAME_LINES_MAX) == []


def test_a_repetition_is_found_where_it_begins_and_once() -> None:
    same = "\n".join(f"    line_{number}()" for number in range(5))
    sources = {
        "one.py": f"import a\n\ndef one():\n{same}\n    one_end()\n",
        "two.py": f"class Two:\n    def two(self):\n{same.replace('    ', '        ')}\n",
    }
    assert repetitions(sources, 3) == ["one.py:4 and two.py:3"]
    assert repetitions(sources, 5) == []


def test_a_repetition_within_one_file_is_found() -> None:
    assert repetitions({"one.py": "a\nb\nc\nx\na\nb\nc\n"}, 2) == ["one.py:1 and one.py:5"]


def test_imports_count_for_nothing_and_the_signature_of_a_method_for_one_line() -> None:
    source = """
from a import (
    b,
    c,
)
import d

class Thing:
    def method(
        self,
        one: int,
    ) -> None:
        pass

def function(
    one: int,
) -> None:
    pass
"""
    assert [number for number, _ in counted_lines(source)] == [8, 9, 13, 15, 16, 17, 18]
