"""The map (ARCHITECTURE.md) and the docstrings of the rooms show the house as it is.

The picture of the layers is held to the contracts of import-linter, which are held to the imports;
each step of a walk is a function that is there; each room names its modules, and no others.
"""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from tests.tidy.source_tree import PACKAGES, ROOT, project_files, python_files, text_of

ROOMS = sorted(
    file.parent.as_posix()
    for file in python_files()
    if file.name == "__init__.py" and file.parts[0] in PACKAGES
)

NEWCOMER_FINDS = 23
"""Of the 24 of docs/newcomer.md. Make it larger when you can."""

STEP = re.compile(r"`([\w/]+\.py)::([\w.]+)`")


def floors_of(layers: list[str]) -> list[frozenset[str]]:
    """The rooms of each layer, from the top."""
    return [frozenset(part.strip() for part in layer.split("|")) for layer in layers]


def pictured(text: str) -> dict[bool, list[str]]:
    """The layers that a picture shows: of the top, and (True) indented, of the kernel."""
    found: dict[bool, list[str]] = {False: [], True: []}
    for line in text.splitlines():
        name, _, _ = line.strip().partition("  ")
        found[line.startswith(" ")].append(name)
    return found


def test_the_picture_of_the_layers_is_what_the_contracts_say() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layered = {
        ".".join(each.get("containers", ())): each["layers"]
        for each in contracts["contracts"]
        if each["type"] == "layers"
    }
    whole, kernel = layered[""], layered["kernel"]
    picture = re.search(r"^## Layers.*?^```\n(.*?)^```", _map(), re.DOTALL | re.MULTILINE)
    assert picture is not None
    shown = pictured(picture[1])
    assert floors_of(shown[False]) == floors_of(whole)
    assert floors_of(shown[True]) == floors_of(kernel)


def test_a_picture_is_read_by_its_indentation() -> None:
    shown = pictured("a                   what it is\n    b | c           more\n    d")
    assert shown == {False: ["a"], True: ["b | c", "d"]}
    assert floors_of(shown[True]) == [{"b", "c"}, {"d"}]


def test_every_step_of_a_walk_is_a_function_that_is_there() -> None:
    steps = STEP.findall(_map())
    assert len(steps) > 30, "the search finds them"
    assert [f"{file}::{name}" for file, name in steps if name not in _defined(file)] == []


def test_the_map_is_read_in_one_sitting() -> None:
    assert _map().count("\n") <= 300


@pytest.mark.parametrize("room", ROOMS)
def test_a_rooms_docstring_names_its_modules_and_no_others(room: str) -> None:
    text = ast.get_docstring(ast.parse(text_of(Path(room, "__init__.py")) or "")) or ""
    inside = {file.relative_to(room) for file in python_files() if file.is_relative_to(room)}
    there = {each.stem for each in inside if len(each.parts) == 1}
    there |= {each.parts[0] for each in inside if len(each.parts) == 2}
    there -= {"__init__", "__main__"}
    assert there - set(re.findall(r"`(\w+)", text)) == set(), "not named"
    listed = [line.partition(":")[0] for line in text.splitlines() if line.startswith("- ")]
    assert set(re.findall(r"`(\w+)`", " ".join(listed))) - there == set(), "not there"


def test_a_newcomer_finds_the_place_by_its_name() -> None:
    page = text_of(Path("docs/newcomer.md")) or ""
    rows = re.findall(r"^\| [^|]+ \| `([\w/.]+)` \| `([\w/.]+)` \|", page, re.MULTILINE)
    assert len(rows) == 24
    there = {file.as_posix() for file in project_files()}
    assert [right for _, right in rows if right not in there] == []
    assert sum(guess == right for guess, right in rows) >= NEWCOMER_FINDS


def _map() -> str:
    return text_of(Path("ARCHITECTURE.md")) or ""


def _defined(file: str) -> set[str]:
    """Functions and methods of a module, by their qualified names."""
    if Path(file) not in project_files():
        return set()
    found: set[str] = set()
    for node in ast.parse(text_of(Path(file)) or "").body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{each.name}"
                for each in node.body
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return found
